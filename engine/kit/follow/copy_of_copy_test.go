package follow_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// copyInFlight returns a route that has read three batches of a.log. Its copy a.log.1 lacks the
// third one. The last two batches are in flight.
func copyInFlight(t *testing.T, d *folder, s *follow.Catalogue) *route {
	t.Helper()
	a := d.open(s, "a", nil)
	a.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
	d.put(t, "a.log", "1 one\n")
	a.readInFlight(t)
	a.settleLast()
	d.put(t, "a.log", "2 two\n")
	a.readInFlight(t)
	d.copyTruncate(t, "a.log", "a.log.1", func() {
		d.put(t, "a.log", "3 in no file\n")
		a.readInFlight(t)
	})
	return a
}

// TestFewListingsWhileDataIsInFlight checks that a route does not list its files continuously while
// a copy waits for data in flight.
func TestFewListingsWhileDataIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, other, _ := twoRoutes(t, follow.Growing{})
		stop(t, other)
		s := d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a := copyInFlight(t, d, s)
		a.readInFlight(t)
		calls := 0
		d.step = func() { calls++ }
		a.readInFlight(t)
		if calls > 100 {
			t.Errorf("%d system calls in 10s, want at most 100", calls)
		}
		stop(t, a)
	})
}

// TestCopyIsCopiedWhileDataIsInFlight checks a copy that is copied and rewritten while data of its
// original is in flight. The data of the copy is not read twice, and no loss is reported.
func TestCopyIsCopiedWhileDataIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, other, _ := twoRoutes(t, follow.Growing{})
		stop(t, other)
		s := d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
		a := copyInFlight(t, d, s)
		a.readInFlight(t)
		d.copyTruncate(t, "a.log.1", "a.log.2", func() {})
		a.readInFlight(t)
		a.unordered.settleAll(a)
		for range 60 {
			a.run(t, time.Second)
			a.unordered.settleAll(a)
		}
		a.want(t, d, "1 one", "2 two", "3 in no file")
		if log := d.log.String(); strings.Contains(log, "are lost") {
			t.Errorf("a loss is reported; the log:\n%s", log)
		}
		stop(t, a)
	})
}

// TestOriginalIsSealedWhileItsCopyIsAwaited checks a chain of copies: a.log.1 is a copy of a.log,
// and awaits its own copy a.log.2. Meanwhile the partition of a.log is sealed. The rest of a.log.1
// must be read in a.log.2.
func TestOriginalIsSealedWhileItsCopyIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, other, _ := twoRoutes(t, follow.Growing{})
		stop(t, other)
		s := d.set(follow.Growing{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		time.Sleep(time.Second) // Run begins
		a := copyInFlight(t, d, s)
		time.Sleep(20 * time.Second) // Run lists, because the route does not call Read
		const rest = "4 late end of the copy\n"
		d.put(t, "a.log.1", rest)
		time.Sleep(20 * time.Second)
		d.empty(t, "a.log.1")
		time.Sleep(1500 * time.Millisecond)
		for range 2 {
			readFor(t, a, 500*time.Millisecond)
		}
		a.Deleted()
		d.put(t, "a.log.2", "1 one\n2 two\n"+rest)
		readFor(t, a, 20*time.Second)
		a.unordered.settleAll(a)
		for range 60 {
			a.run(t, time.Second)
			a.unordered.settleAll(a)
		}
		a.want(t, d, "1 one", "2 two", "3 in no file", rest[:len(rest)-1])
		stop(t, a)
	})
}

// readFor reads at most one batch, which stays in flight, within a given time.
func readFor(t *testing.T, r *route, most time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	b := stream.NewBatch(stream.BatchLimits{})
	if r.Read(ctx, b) != nil {
		return
	}
	for i := range b.Spans {
		r.unordered.open(r, &b.Spans[i])
	}
	r.unordered.flight = append(r.unordered.flight, b)
}
