package pipeline

import (
	"strings"

	"github.com/penstock-io/penstock/supervise"
)

// A Treed sink tells of what it keeps running beneath its route's goroutines: children, connections. Tree may be called by
// any goroutine while the sink is open.
type Treed interface {
	Tree() supervise.Status
}

// Tree is what runs in the engine now: its pipelines, their routes and every goroutine of each by its name. The parts are
// seen one after the other, not at one instant. Draw it with String.
func (e *Engine) Tree() supervise.Status {
	root := supervise.Status{Name: "penstock", State: supervise.Idle}
	if t := e.started.Load(); t != nil {
		root.State, root.Since, root.Starts = supervise.Running, *t, 1
	}
	for _, p := range e.pipes {
		node := supervise.Status{Name: p.name, State: root.State}
		node.Children = append(node.Children, p.host.tree(nil)...)
		for _, r := range p.routes {
			node.Children = append(node.Children, r.tree())
		}
		root.Children = append(root.Children, node)
	}
	return root
}

// tree is the part of one route.
func (r *route) tree() supervise.Status {
	r.mu.Lock()
	node := supervise.Status{Name: r.cfg.Name, State: supervise.Idle, Since: r.started}
	sender, err := r.sender, r.err
	switch r.health {
	case healthRunning:
		if !r.started.IsZero() {
			node.State, node.Starts = supervise.Running, 1
		}
	case healthDraining:
		node.State, node.Starts = supervise.Halting, 1
	default:
		node.State, node.Starts = supervise.Finished, 1
	}
	r.mu.Unlock()
	if err != nil {
		node.Err, _, _ = strings.Cut(err.Error(), "\n")
	}
	var below []supervise.Status
	if t, ok := r.sink.(Treed); ok && node.State != supervise.Finished {
		below = t.Tree().Children
	}
	node.Children = r.host.tree(below)
	if sender == nil || node.State == supervise.Finished {
		return node
	}
	status, names := sender.Status()
	lanes := supervise.Status{Name: "sender", State: node.State, Starts: 1}
	for _, l := range status.Lanes {
		lanes.Children = append(lanes.Children, supervise.Status{Name: names[l.Lane], State: supervise.Running, Starts: 1})
	}
	node.Children = append(node.Children, lanes)
	return node
}

// childrenName is the goroutine of a sink under which its Tree belongs.
const childrenName = "children"

// tree lists the goroutines of a host's group, those of one name as one with their number.
func (h *host) tree(below []supervise.Status) []supervise.Status {
	g := h.group.Load()
	if g == nil {
		return nil
	}
	var nodes []supervise.Status
	for _, name := range g.Running() {
		name = strings.TrimPrefix(name, h.prefix+"/")
		node := supervise.Status{Name: name, State: supervise.Running, Starts: 1}
		if name == childrenName {
			node.Children, below = below, nil
		}
		nodes = append(nodes, node)
	}
	return nodes
}
