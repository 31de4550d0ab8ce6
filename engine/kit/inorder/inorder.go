//penstock:pure

// Package inorder puts delivery attempts into order. It is for workers that must deliver batches in
// the order in which they were read. Attempts may arrive in any order, because the engine calls
// Deliver concurrently.
//
// Its only type is [Order], the state of one worker. The worker must synchronize its calls.
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

// Order releases the attempts of a run in the order of their places. A run is a sequence of
// attempts at one worker. A failure ends the run. A place is the number of an attempt in its run:
// 0, 1, 2 and so on. Example: the places 0, 2, 1 arrive. 0 is released at once. 2 waits. When 1
// arrives, 1 and 2 are released.
//
// After a failed attempt, Order refuses all later attempts of the same run. A new run begins when
// one of its attempts arrives.
//
// The zero value is ready to use. An Order is not safe for concurrent use.
type Order[T any] struct {
	begun   bool
	run     uint32
	next    uint32       // place of the attempt that is released next
	failure error        // error for the other attempts of the run; nil if no attempt has failed
	waiting map[uint32]T // attempts that wait for earlier ones, by place
}

// Arrive adds the attempt v with the given run and place. If v need not wait for earlier places,
// Arrive calls the function out with v, and then with each waiting attempt that can follow. If
// Arrive returns an error, v has failed and is not kept. This happens for an attempt of an earlier
// run, of a failed run, or with a place that was taken before.
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

// Waits reports whether the attempt with this run and place has arrived and waits for earlier ones.
func (o *Order[T]) Waits(run, place uint32) bool {
	_, ok := o.waiting[place]
	return ok && run == o.run
}

// Fail ends the current run of attempts: Arrive then refuses all later attempts of this run. If the
// run has not failed before, Arrive's error wraps err. Fail also calls the function out with each
// waiting attempt, in the order of their places, and removes the attempt. See [Order] for runs and
// places.
func (o *Order[T]) Fail(err error, out func(T)) {
	if o.failure == nil {
		o.failure = fmt.Errorf("another batch of the same run failed: %w", err)
	}
	for _, place := range slices.Sorted(maps.Keys(o.waiting)) {
		out(o.waiting[place])
		delete(o.waiting, place)
	}
}
