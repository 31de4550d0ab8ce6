package follow_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// readInFlight reads a batch, and reports whether there was one. The batch stays in flight.
func (r *route) readInFlight(t *testing.T) bool {
	t.Helper()
	b := stream.NewBatch(stream.BatchLimits{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Read(ctx, b); errors.Is(err, context.DeadlineExceeded) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	u := r.unordered
	for i := range b.Spans {
		u.open(r, &b.Spans[i])
	}
	u.flight = append(u.flight, b)
	return true
}

// settleLast settles the last batch in flight.
func (r *route) settleLast() { r.unordered.settle(r, len(r.unordered.flight)-1) }

// TestCopyLacksDataInFlight checks a copy that lacks a line that was read in its original. When the
// route restarts, with or without the process, an earlier batch of the original is still in flight.
// The data of that batch must be read in the copy. Another route may have read less, so that it
// continues the partition of the original in the copy.
func TestCopyLacksDataInFlight(t *testing.T) {
	for _, tt := range []struct {
		name         string
		killed, less bool
	}{
		{name: "the process ends", killed: true},
		{name: "the route restarts"},
		{name: "the process ends, another route has read less", killed: true, less: true},
		{name: "the route restarts, another route has read less", less: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { copyLacksDataInFlight(t, tt.killed, tt.less) })
		})
	}
}

func copyLacksDataInFlight(t *testing.T, killed, less bool) {
	d, other, _ := twoRoutes(t, follow.Growing{})
	stop(t, other)
	s := d.set(follow.Growing{})
	s.BeginRun()
	t.Cleanup(s.EndRun)
	a := d.open(s, "a", nil)
	a.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
	routes := []*route{a}
	d.put(t, "a.log", "1 one\n")
	a.readInFlight(t)
	a.settleLast()
	if less {
		b := d.open(s, "b", nil)
		b.run(t, time.Second)
		routes = append(routes, b)
	}
	d.put(t, "a.log", "2 two\n")
	a.readInFlight(t)
	d.copyTruncate(t, "a.log", "a.log.1", func() {
		d.put(t, "a.log", "3 in no file\n")
		a.readInFlight(t)
	})
	d.put(t, "a.log", "4 four\n")
	for a.readInFlight(t) {
		a.settleLast()
	}
	if killed {
		stop(t, routes...)
		s = d.set(follow.Growing{})
		s.BeginRun()
		t.Cleanup(s.EndRun)
	} else {
		stop(t, a)
		routes = routes[:1]
	}
	for i, r := range routes {
		next := d.open(s, []string{"a", "b"}[i], r.marks)
		next.lines, routes[i] = r.lines, next
	}
	turns(t, 60, time.Second, routes...)
	for _, r := range routes {
		r.want(t, d, "1 one", "2 two", "4 four")
	}
	if log := d.log.String(); !killed && !strings.Contains(log, "13 bytes are lost") {
		t.Errorf("the line that no file has is not reported as lost; the log:\n%s", log)
	}
	stop(t, routes...)
}

// TestOnceEndsWhenDataInFlightSettles checks a finite run (Once) and a copy that lacks a line that
// was read in its original. The run ends soon after the data in flight has settled.
func TestOnceEndsWhenDataInFlightSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, other, _ := twoRoutes(t, follow.Growing{})
		stop(t, other)
		r := &route{ids: make(map[string]string), marks: make(map[string]stream.Mark)}
		r.Reader = d.set(follow.Growing{}).Open(stream.OpenOptions{Once: true})
		t.Cleanup(func() { _ = r.Close() })
		r.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
		d.put(t, "a.log", "1 one\n")
		r.readInFlight(t)
		d.put(t, "a.log", "2 two\n")
		r.readInFlight(t)
		d.copyTruncate(t, "a.log", "a.log.1", func() {
			d.put(t, "a.log", "3 in no file\n")
			r.readInFlight(t)
		})
		d.put(t, "a.log", "4 four\n")
		for r.readInFlight(t) { // it does not return io.EOF
			continue
		}
		r.unordered.settleAll(r)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := error(nil)
		for err == nil {
			b := stream.NewBatch(stream.BatchLimits{})
			if err = r.Read(ctx, b); err == nil {
				r.unordered.deliver(r, b)
				r.unordered.settleAll(r)
			}
		}
		if err != io.EOF {
			t.Errorf("Read: %v, want EOF; the log:\n%s", err, &d.log)
		}
		r.want(t, d, "1 one", "2 two", "3 in no file", "4 four")
	})
}

// TestCopyLacksDataAboveAGap checks a copy that lacks the last line that two routes have read in
// the original. When the process ended, line 2 was in flight at one of these routes, which had
// delivered later lines. This route must read line 2 in the copy.
func TestCopyLacksDataAboveAGap(t *testing.T) {
	for name, upTo := range map[string]int{"the copy has it": 3, "the copy lacks it": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, _ := twoRoutes(t, follow.Growing{})
				s := d.set(follow.Growing{})
				a, b, c := newRoute(t, s, nil), newRoute(t, s, nil), newRoute(t, s, nil)
				a.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
				lines := []string{"1 one", "2 two", "3 three", "4 in no file"}
				put := func(i int) {
					d.put(t, "a.log", lines[i]+"\n")
					a.readInFlight(t)
					if i != 1 && i < upTo {
						a.settleLast()
					}
					c.run(t, time.Second)
				}
				for i := range 3 {
					put(i)
				}
				b.run(t, time.Second)
				d.copyTruncate(t, "a.log", "a.log.1", func() { put(3); stop(t, a, b, c) })
				d.put(t, "a.log", "5 five\n")
				s = d.set(follow.Growing{})
				a2, b2 := newRoute(t, s, a.marks), newRoute(t, s, b.marks)
				c2 := newRoute(t, s, c.marks)
				turns(t, 30, time.Second, a2, b2, c2)
				a2.want(t, d, "2 two", "5 five")
				b2.want(t, d, "5 five")
				c2.want(t, d, "5 five")
			})
		})
	}
}
