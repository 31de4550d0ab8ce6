package supervise

import (
	"context"
	"slices"
	"sync"
)

// within lists the supervisors and groups that run inside one incarnation, or inside one goroutine
// of a group. They find this list in their context and add themselves, so that Status can show them
// below that child or goroutine.
type within struct {
	mu    sync.Mutex // guards parts
	parts []part
}

// part is a *Supervisor or a *Group, as seen by Status.
type part interface {
	Status() Status
}

func (w *within) add(p part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parts = append(w.parts, p)
}

func (w *within) remove(p part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parts = slices.DeleteFunc(w.parts, func(q part) bool { return q == p })
}

// list returns a copy of the parts, in order of start.
func (w *within) list() []part {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.parts)
}

// adopt adds the supervisors and groups in w to s, the status of the child or goroutine inside
// which they run. A supervisor that is the child's service, or has the child's name, is shown as
// the child itself. A group without a name is replaced by its goroutines.
func (s *Status) adopt(w *within, service Service) {
	if w == nil {
		return
	}
	for _, p := range w.list() {
		below := p.Status()
		sub, isTree := p.(*Supervisor)
		switch {
		case isTree && s.Strategy == nil && (Service(sub) == service || below.Name == s.Name):
			s.Strategy = below.Strategy
			s.Children = append(s.Children, below.Children...)
		case below.Name == "":
			s.Children = append(s.Children, below.Children...)
		default:
			s.Children = append(s.Children, below)
		}
	}
}

// hook returns the function to call for each event: own, or that of the supervisor above if own is
// nil. If both are nil, it returns a function that does nothing.
func (up above) hook(own func(context.Context, Event)) func(context.Context, Event) {
	switch {
	case own != nil:
		return own
	case up.tell != nil:
		return up.tell
	}
	return func(context.Context, Event) {}
}

// supervised returns the data that ctx holds about the nearest supervisor above. It returns false
// if there is no such supervisor.
func supervised(ctx context.Context) (above, bool) {
	up, ok := ctx.Value(aboveKey{}).(above)
	return up, ok
}
