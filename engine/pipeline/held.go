package pipeline

import (
	"context"
	"time"
)

// held is what the reader has read and not handed on, in read order. To hand a batch to another goroutine wakes another core, which
// costs some microseconds on either side: a tenth of the time in which a batch is read out of the page cache. So a reader that says
// when it will wait (penstock.Waiter), and reads that fast, hands on several at a time.
type held struct {
	first, last *job
	n           int
}

const (
	heldMost = 8                      // batches are handed on together
	heldFast = 250 * time.Microsecond // a batch that took longer to read is handed on at once: the wake is small beside it
)

func (h *held) add(j *job) {
	if h.n++; h.n == 1 {
		h.first = j
	} else {
		h.last.rest = j
	}
	h.last = j
}

// more says whether another batch may be waited for, the last one having been read in took.
func (h *held) more(took time.Duration) bool { return h.n < heldMost && took <= heldFast }

// handOn hands on what is held, unless stop is done. The reader's goroutine calls it: when it holds enough, before it waits for
// anything, and at its end.
func (r *route) handOn(stop context.Context) {
	if r.held.n == 0 {
		return
	}
	select {
	case r.jobs <- r.held.first:
	case <-stop.Done(): // what was read stays with the garbage collector
	}
	r.held = held{}
}
