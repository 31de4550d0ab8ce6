package flow

import (
	"slices"

	"github.com/penstock-io/penstock/flow/control"
)

// laneTable holds the lanes (the workers' places in the sender) by number. A lane's number
// becomes free when the lane was taken down and none of its attempts runs.
type laneTable[T any] struct {
	byNumber []*lane[T] // nil: free
}

func (r *laneTable[T]) find(name string) *lane[T] {
	for _, ln := range r.byNumber {
		if ln != nil && ln.Name == name {
			return ln
		}
	}
	return nil
}

func (r *laneTable[T]) add(l Lane[T]) *lane[T] {
	n := slices.Index(r.byNumber, nil)
	if n < 0 {
		n = len(r.byNumber)
		r.byNumber = append(r.byNumber, nil)
	}
	ln := &lane[T]{Lane: l, number: int32(n)}
	r.byNumber[n] = ln
	return ln
}

// replaceLanes replaces the lanes by list. First the lanes that are not in list go down. Then each
// lane of list is added or gets its new limits, in the order of list.
func (l *loop[T]) replaceLanes(list []Lane[T]) {
	stays := make(map[string]bool, len(list))
	for i := range list {
		stays[list[i].Name] = true
	}
	for _, ln := range l.lanes.byNumber {
		if ln == nil || stays[ln.Name] {
			continue
		}
		ln.replacement = nil
		if ln.up {
			ln.up = false
			l.step(control.Event{Kind: control.LaneDown, Lane: ln.number})
			l.freeNumber(ln)
		}
	}
	for i := range list {
		switch ln := l.lanes.find(list[i].Name); {
		case ln == nil:
			l.bringUp(l.lanes.add(list[i]))
		case !ln.up && (ln.Limits.Ordered || list[i].Limits.Ordered):
			ln.replacement = &list[i]
		case !ln.up:
			// Leave the name alone: runners read it concurrently.
			ln.Worker, ln.Limits = list[i].Worker, list[i].Limits
			l.bringUp(ln)
		case ln.Limits != list[i].Limits:
			ln.Limits = list[i].Limits
			l.bringUp(ln)
		}
	}
}

// bringUp tells the state machine that ln is up, or its new limits.
func (l *loop[T]) bringUp(ln *lane[T]) {
	if !ln.up {
		ln.up = true
		l.nameLanes()
	}
	l.step(control.Event{Kind: control.LaneUp, Lane: ln.number, Limits: ln.Limits})
}

// freeNumber frees the number of a lane that is down and has no running attempt. If the lane is to
// be replaced (lane.replacement), freeNumber adds the replacement.
func (l *loop[T]) freeNumber(ln *lane[T]) {
	if ln.up || ln.running > 0 {
		return
	}
	l.lanes.byNumber[ln.number] = nil
	l.nameLanes()
	if ln.replacement != nil && l.phase != stopping {
		l.bringUp(l.lanes.add(*ln.replacement))
	}
}

// allFaulty reports whether there are lanes, and the last attempt of each was Misconfigured.
func (r *laneTable[T]) allFaulty() bool {
	up := 0
	for _, ln := range r.byNumber {
		if ln == nil || !ln.up {
			continue
		}
		if up++; ln.fault == nil {
			return false
		}
	}
	return up > 0
}

// nameLanes updates the names that Status returns.
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
