package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// alone is a machine with one lane, which has answered often, in 2 ms each.
func alone(t *testing.T) *loop {
	t.Helper()
	l := newLoop(t, 1, window.Fixed{Size: 1})
	for range 100 {
		l.now += 2 * ms
		l.ack()
	}
	return l
}

// stall lets the attempt that is out take d, with a Tick as often as the machine wants one, each
// late by so much.
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

// TestLeastTimeout: on a busy machine Ticks come late, and a worker that mostly answers in 2 ms
// takes 300 now and then. No batch is sent twice, including the one during the first late Tick. The
// minimum is 200 ms while Ticks are on time, and again a minute after the last late one.
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
			if i >= 20 { // a quiet minute later
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
			t.Errorf("of 20 more answers after %v, when Ticks were on time, %d came too late", c.takes, n-c.want)
		}
	}
}

// TestLateTick: by as much as this process was held up itself, once, an attempt may take longer.
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
		// checked at 220, when the machine is seen to be busy, at 260, and at 820
		{825 * ms, 20 * ms, 1},
		{205 * ms, 300 * time.Microsecond, 1},
		{900 * ms, 400 * ms, 0},
	} {
		l := alone(t)
		l.stall(c.takes, c.late)
		if n := l.timedOut(); n != c.want {
			t.Errorf("after %v, with Ticks late by %v, %d attempts are overdue, want %d", c.takes, c.late, n, c.want)
		}
	}
}
