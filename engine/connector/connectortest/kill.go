package connectortest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// sinkCancelled checks calls of Deliver with a context that ends before or during the call. Each
// call must return soon. Failed batches are delivered again. If SinkCase.ExactlyOnce is set or the
// only lane is ordered, the receiver must then have each record once.
func sinkCancelled(t *testing.T, c SinkCase) {
	const rounds, seed = 12, 4
	r := c.Start(t)
	l := live(t, r, "")
	random := randomFrom(t, seed)
	enough := errors.New("enough")
	each := min(l.atOnce(), 6)
	next := 0
	for range rounds {
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := time.Duration(random.IntN(3)) * 300 * time.Microsecond
		timer := time.AfterFunc(wait, func() { cancel(enough) })
		if wait == 0 {
			cancel(enough)
		}
		for pending := true; pending; {
			var batches []*stream.Batch
			for n := range each {
				batches = append(batches, l.batch(next+n))
			}
			began := time.Now()
			all := l.deliver(ctx, batches, nil)
			if took := time.Since(began); took > wait+tooLate {
				t.Errorf("Deliver returned %v after its context had ended", took-wait)
			}
			pending = l.again(all, &next)
			ctx = t.Context()
		}
		timer.Stop()
		cancel(enough)
	}
	l.end()
	check(t, r, l.ordered(), !c.ExactlyOnce, texts(0, next))
}

// again sets *next to the number of the next batch to send, given the results of Deliver calls for
// consecutive batches. The first of these has the number *next. again reports whether a call has
// failed.
//
// If none has, again adds the number of batches to *next. Otherwise, on an ordered lane, it adds
// the number of batches before the first failed one, and fails the test if a later one was
// delivered. On other lanes, *next stays after a failure, so that delivered batches are sent twice.
func (l *life) again(all []attempt, next *int) bool {
	l.t.Helper()
	failed := -1
	for n, a := range all {
		if a.err != nil && failed < 0 {
			failed = n
		}
		if a.err == nil && failed >= 0 && l.ordered() {
			l.t.Fatalf("place %d was delivered though place %d had failed: %v", n, failed,
				all[failed].err)
		}
	}
	switch {
	case failed < 0:
		*next += len(all)
		return false
	case l.ordered():
		*next += failed
	}
	return true
}

// sinkKilled ends the process after a few batches, several times. Each next process starts from a
// checkpoint. The checkpoint has either all batches that were delivered before, or all but the last
// one. No record may be lost and, if SinkCase.ExactlyOnce is set, none may be repeated.
func sinkKilled(t *testing.T, c SinkCase) {
	r := c.Start(t)
	place := ""
	next := 0
	ordered := false
	for cycle := range 16 {
		l := live(t, r, place)
		ordered = l.ordered()
		place = l.place // a checkpoint stores the start before the first Deliver
		for n := range 1 + cycle%3 {
			l.must(l.batch(next))
			if n < cycle%3 || cycle%2 == 0 {
				place = l.place
				next++
			}
		}
		l.end()
	}
	l := live(t, r, place)
	l.must(l.batch(next))
	l.end()
	check(t, r, ordered, !c.ExactlyOnce, texts(0, next+1))
}

func sinkCloses(t *testing.T, c SinkCase) {
	r := c.Start(t)
	l := live(t, r, "")
	l.must(l.batch(0))
	if s, ok := l.sink.(stream.AppendSink); ok {
		if err := s.Sync(t.Context()); err != nil {
			t.Errorf("Sync: %v", err)
		}
	}
	l.end()
	if err := l.sink.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	unopened := r.New(t, NewHost(t))
	if err := unopened.Close(); err != nil {
		t.Errorf("Close of a sink that was never opened: %v", err)
	}
	check(t, r, l.ordered(), false, texts(0, 1))
}
