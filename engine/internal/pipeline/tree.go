package pipeline

import (
	"github.com/penstock-io/penstock/supervise"
)

// senderName is the name of the goroutine of a route that is the parent of its workers.
const senderName = "sender"

// Tree returns the parts of the engine as a tree: its pipelines, their routes and the supervised
// goroutines by name, each with its restarts and last error. It omits the workers. The parts are
// read one after the other, not at one instant. The method String of the result draws the tree.
func (e *Engine) Tree() supervise.Status {
	root := supervise.Status{Name: engineName, State: supervise.Idle}
	if tree := e.tree.Load(); tree != nil {
		root = tree.Status()
	}
	var flat []supervise.Status
	for _, c := range root.Children { // one level fewer: pipelines are siblings of the admin pages
		if c.Name == pipelinesName && c.State == supervise.Running {
			flat = append(flat, c.Children...)
		} else if c.Name != pipelinesName {
			flat = append(flat, c)
		}
	}
	root.Children = flat
	for _, p := range e.pipelines() {
		e.fill(&root, p)
	}
	return root
}

// fill adds the routes of p to the tree. The tree was made from the supervisors, which do not have
// the routes of a pipeline that is not running. fill creates nodes for them.
func (e *Engine) fill(root *supervise.Status, p *pipe) {
	node := childOf(root, p.name)
	if node == nil {
		root.Children = append(root.Children, supervise.Status{Name: p.name, State: root.State})
		node = &root.Children[len(root.Children)-1]
	}
	for _, s := range p.routes() {
		route := childOf(node, s.cfg.Name)
		if route == nil {
			node.Children = append(node.Children, supervise.Status{Name: s.cfg.Name})
			route = &node.Children[len(node.Children)-1]
		}
		s.fill(route)
	}
}

func childOf(s *supervise.Status, name string) *supervise.Status {
	for i := range s.Children {
		if s.Children[i].Name == name {
			return &s.Children[i]
		}
	}
	return nil
}

// fill completes the node of the slot's route with state that its supervisor does not know.
func (s *slot) fill(node *supervise.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.route
	node.Starts = uint64(s.starts)
	if s.err != nil {
		node.Err = firstLine(s.err)
	}
	r.mu.Lock()
	health := r.health
	r.mu.Unlock()
	switch {
	case s.starts == 0:
		node.State = supervise.Idle
	case health == healthDraining && node.State == supervise.Running:
		node.State = supervise.Halting
	case !s.running && s.next.IsZero():
		node.State, node.Children = supervise.Finished, nil
	}
}
