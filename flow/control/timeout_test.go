package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// alone returns a loop with one lane that has answered many times, after 2 ms each.
func alone(t *testing.T) *loop {
	t.Helper()
	l := newLoop(t, 1, window.Fixed{Size: 1})
	for range 100 {
		l.now += 2 * ms
		l.ack()
	}
	return l
}

// stall lets the running attempt take d. Each Tick that the machine requests is delayed by late.
func (l *loop) stall(d, late time.Duration) {
	end := l.now + d
	for {
		at, ok := l.m.Wake()
		if !ok || at+late > end {
			break
		}
		l.now = max(l.now, at+late)
		l.step(control.Event{Kind: control.Tick})
	}
	l.now = end
}

func (l *loop) timedOut() uint64 { return l.m.Status().Lanes[0].TimedOut }

// TestLeastTimeout checks the minimum timeout of a worker that usually answers in 2 ms. While Ticks
// come late, on a busy computer, an answer after 300 ms is not overdue. This also holds for the
// answer during the first late Tick. While Ticks are on time, and again a minute after the last
// late one, the minimum is 200 ms.
func TestLeastTimeout(t *testing.T) {
	for _, c := range []struct {
		late  time.Duration
		takes time.Duration
		want  uint64
	}{{0, 300 * ms, 20}, {300 * time.Microsecond, 300 * ms, 20}, {2 * ms, 300 * ms, 0},
		{10 * ms, 300 * ms, 0}, {10 * ms, 900 * ms, 20}} {
		l := alone(t)
		for i := range 40 {
			late := c.late
			if i >= 20 { // after a minute without late Ticks
				late = 0
			}
			l.stall(c.takes, late)
			l.ack()
			for range 20 {
				l.now += 2 * ms
				l.ack()
			}
			if i == 19 {
				if n := l.timedOut(); n != c.want {
					t.Errorf("with Ticks late by %v, %d of 20 answers after %v came too late, "+
						"want %d", c.late, n, c.takes, c.want)
				}
				for range time.Minute / (2 * ms) {
					l.now += 2 * ms
					l.ack()
				}
			}
		}
		if n := l.timedOut(); n != c.want+20 {
			t.Errorf("of 20 more answers after %v, when Ticks were on time, %d came too late",
				c.takes, n-c.want)
		}
	}
}

// TestLateTick checks that a deadline is extended, once, by the time for which this process was
// held up.
func TestLateTick(t *testing.T) {
	for _, c := range []struct {
		takes, late time.Duration
		want        uint64
	}{
		{195 * ms, 0, 0},
		{205 * ms, 0, 1},
		{205 * ms, 20 * ms, 0},
		{235 * ms, 20 * ms, 0},
		{815 * ms, 20 * ms, 0},
		// Ticks come at 220 ms, which shows that the computer is busy, at 260 ms and at 820 ms.
		{825 * ms, 20 * ms, 1},
		{205 * ms, 300 * time.Microsecond, 1},
		{900 * ms, 400 * ms, 0},
	} {
		l := alone(t)
		l.stall(c.takes, c.late)
		if n := l.timedOut(); n != c.want {
			t.Errorf("after %v, with Ticks late by %v, %d attempts are overdue, want %d", c.takes,
				c.late, n, c.want)
		}
	}
}

// TestLateTickOfTheBudget checks that a Tick for the next token of the budget, which comes late,
// extends the deadline of the running attempt: this process was held up.
func TestLateTickOfTheBudget(t *testing.T) {
	for _, c := range []struct {
		late time.Duration
		want uint64
	}{{0, 1}, {100 * ms, 0}} {
		l := newKeyed(t, 1, 0, control.Limits{}, control.Config{
			Window: window.Fixed{Size: 2}, Retry: backoff.Fixed(0),
			Budget:  control.Budget{Share: 1e-6, PerSecond: 10, Burst: 1},
			Breaker: control.Breaker{Failures: -1},
		})
		for range 100 {
			l.now += 2 * ms
			l.ack()
		}
		for range 2 { // the second failure of the item waits for a token
			id := l.flying[l.head]
			l.flying = slices.Delete(l.flying, l.head, l.head+1)
			l.step(control.Event{Kind: control.Answer, ID: id, Outcome: control.Retryable})
			slices.Reverse(l.flying[l.head:])
		}
		if l.m.Status().Budget.Waiting != 1 {
			t.Fatal("no item waits for a token")
		}
		l.stall(201*ms, c.late)
		if n := l.timedOut(); n != c.want {
			t.Errorf("with Ticks late by %v, %d attempts are overdue, want %d", c.late, n, c.want)
		}
	}
}
