//penstock:pure

// Package inorder restores the order of effect of attempts that arrive at an ordered lane in any
// order.
//
// It holds one lane's [Order], which the lane owns and guards. It never calls a clock, starts
// nothing and keeps nothing of a run that is over.
package inorder

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

var (
	errOldRun = errors.New("the batch belongs to a run that is over")
	errTwice  = errors.New("the place in the run was taken already")
)

// Order restores the order of effect: by place, which counts from 0 in each run. After a failure
// all later places of the run fail, until the next run begins. The zero value is ready to use. An
// Order is not safe for concurrent use.
type Order[T any] struct {
	begun   bool
	run     uint32
	next    uint32       // the place that comes out next
	failure error        // why the rest of the run fails; nil: it goes on
	waiting map[uint32]T // arrived before their turn
}

// Arrive takes v and calls out for each one whose turn has come. An error: v fails, and nothing was
// kept of it.
func (o *Order[T]) Arrive(run, place uint32, v T, out func(T)) error {
	if !o.begun || int32(run-o.run) > 0 { // run numbers may wrap
		if len(o.waiting) > 0 {
			panic("inorder: BUG: a run began before all of the one before it had returned")
		}
		o.begun, o.run, o.next, o.failure = true, run, 0, nil
	}
	switch {
	case run != o.run:
		return errOldRun
	case o.failure != nil:
		return o.failure
	case place < o.next:
		return errTwice
	case place > o.next:
		if _, taken := o.waiting[place]; taken {
			return errTwice
		}
		if o.waiting == nil {
			o.waiting = make(map[uint32]T)
		}
		o.waiting[place] = v
		return nil
	}
	out(v)
	for o.next++; ; o.next++ {
		v, ok := o.waiting[o.next]
		if !ok {
			return nil
		}
		delete(o.waiting, o.next)
		out(v)
	}
}

// Waits reports whether the given place has arrived and has not come out.
func (o *Order[T]) Waits(run, place uint32) bool {
	_, ok := o.waiting[place]
	return ok && run == o.run
}

// Fail ends the run and calls out for each one that waited, by place.
func (o *Order[T]) Fail(err error, out func(T)) {
	if o.failure == nil {
		o.failure = fmt.Errorf("an earlier batch of the same run failed: %w", err)
	}
	for _, place := range slices.Sorted(maps.Keys(o.waiting)) {
		out(o.waiting[place])
		delete(o.waiting, place)
	}
}
