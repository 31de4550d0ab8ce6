//penstock:pure

// Package inorder releases the attempts of an ordered lane in order, although they may arrive in
// any order.
//
// Its only type is [Order], the state of one lane. The lane owns it and synchronizes access. The
// package uses no clock, starts no goroutine, and keeps no state of earlier runs.
package inorder

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

var (
	errOldRun = errors.New("the batch belongs to a run that has ended")
	errTwice  = errors.New("the position in the run is already used")
)

// Order releases the attempts of a run in the order of their places. A place is the number of an
// attempt within its run: 0, 1, 2 and so on. For example, the places 0, 2, 1 arrive: 0 is released
// at once, 2 waits, and the arrival of 1 releases 1 and 2. After a failed attempt, Order rejects
// all later attempts of the same run. The first attempt of a newer run begins that run.
//
// The zero value is ready to use. An Order is not safe for concurrent use.
type Order[T any] struct {
	begun   bool
	run     uint32
	next    uint32       // the place that is released next
	failure error        // why the rest of the run fails; nil if the run has not failed
	waiting map[uint32]T // arrived before their turn
}

// Arrive adds the attempt v. It calls out, in order, for each attempt with no missing attempt
// before it. If Arrive returns an error, v has failed and is not kept.
func (o *Order[T]) Arrive(run, place uint32, v T, out func(T)) error {
	if !o.begun || int32(run-o.run) > 0 { // run numbers may wrap
		if len(o.waiting) > 0 {
			panic("inorder: BUG: a run began before all batches of the previous run had returned")
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

// Waits reports whether the attempt of the given place has arrived and has not been released.
func (o *Order[T]) Waits(run, place uint32) bool {
	_, ok := o.waiting[place]
	return ok && run == o.run
}

// Fail ends the run and calls out for each waiting attempt, ordered by place.
func (o *Order[T]) Fail(err error, out func(T)) {
	if o.failure == nil {
		o.failure = fmt.Errorf("an earlier batch of the same run failed: %w", err)
	}
	for _, place := range slices.Sorted(maps.Keys(o.waiting)) {
		out(o.waiting[place])
		delete(o.waiting, place)
	}
}
