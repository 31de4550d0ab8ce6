package flow

import "github.com/penstock-io/penstock/flow/control"

// roster is the lanes by number. A number is free again when its lane is down and nothing of it runs.
type roster[T any] struct {
	byNumber []*lane[T] // nil: free
}

func (r *roster[T]) find(name string) *lane[T] {
	for _, ln := range r.byNumber {
		if ln != nil && ln.Name == name {
			return ln
		}
	}
	return nil
}

func (r *roster[T]) add(l Lane[T]) *lane[T] {
	n := 0
	for n < len(r.byNumber) && r.byNumber[n] != nil {
		n++
	}
	if n == len(r.byNumber) {
		r.byNumber = append(r.byNumber, nil)
	}
	ln := &lane[T]{Lane: l, number: int32(n)}
	r.byNumber[n] = ln
	return ln
}

// relane makes list the lanes: first those that are missing go down, then the rest go up in the order of list.
func (l *loop[T]) relane(list []Lane[T]) {
	stays := make(map[string]bool, len(list))
	for i := range list {
		stays[list[i].Name] = true
	}
	for _, ln := range l.lanes.byNumber {
		if ln != nil && ln.up && !stays[ln.Name] {
			ln.up = false
			l.step(control.Event{Kind: control.LaneDown, Lane: ln.number})
			l.forget(ln)
		}
	}
	for _, want := range list {
		ln := l.lanes.find(want.Name)
		changed := ln == nil || !ln.up || ln.Limits != want.Limits
		if ln == nil {
			ln = l.lanes.add(want)
		}
		ln.Worker, ln.Limits, ln.up = want.Worker, want.Limits, true
		if changed {
			l.nameLanes()
			l.step(control.Event{Kind: control.LaneUp, Lane: ln.number, Limits: want.Limits})
		}
	}
}

// forget frees the number of a lane that is down and has nothing running.
func (l *loop[T]) forget(ln *lane[T]) {
	if !ln.up && ln.running == 0 {
		l.lanes.byNumber[ln.number] = nil
		l.nameLanes()
	}
}

// nameLanes renews what Status returns.
func (l *loop[T]) nameLanes() {
	names := make([]string, len(l.lanes.byNumber))
	for i, ln := range l.lanes.byNumber {
		if ln != nil {
			names[i] = ln.Name
		}
	}
	l.s.mu.Lock()
	l.s.names = names
	l.s.mu.Unlock()
}
