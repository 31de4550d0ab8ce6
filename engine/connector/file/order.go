//penstock:pure

package file

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

// order brings what arrives in any order into the order of effect: by place, dense from 0 in a run. Once one of a run has
// failed, all of it that is not out yet fails, until the next run begins. It is not safe for concurrent use.
type order[T any] struct {
	begun   bool
	run     uint32
	next    uint32       // the place that comes out next
	failure error        // why the rest of the run fails; nil: it goes on
	waiting map[uint32]T // arrived before their turn
}

// arrive takes v and calls out for each one whose turn has come. An error: v fails, and nothing was kept of it.
func (o *order[T]) arrive(run, place uint32, v T, out func(T)) error {
	if !o.begun || int32(run-o.run) > 0 { // run numbers may wrap
		if len(o.waiting) > 0 {
			panic("file: BUG: a run began before all of the one before it had returned")
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

// waits says whether the given place has arrived and not come out.
func (o *order[T]) waits(run, place uint32) bool {
	_, ok := o.waiting[place]
	return ok && run == o.run
}

// fail ends the run and calls out for each one that waited, by place.
func (o *order[T]) fail(err error, out func(T)) {
	if o.failure == nil {
		o.failure = fmt.Errorf("an earlier batch of the same run failed: %w", err)
	}
	for _, place := range slices.Sorted(maps.Keys(o.waiting)) {
		out(o.waiting[place])
		delete(o.waiting, place)
	}
}
