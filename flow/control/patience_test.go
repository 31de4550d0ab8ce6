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

// stall lets the attempt that is out take d, with a Tick as often as the machine wants one, each late by so much.
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

// TestLeastTimeoutLearns: on a busy machine, where Ticks come late and a worker that mostly answers in 2 ms takes 300 now and
// then, few batches are sent twice: the first late answers make the least timeout longer. Where Ticks are on time, it is 200 ms.
func TestLeastTimeoutLearns(t *testing.T) {
	for _, c := range []struct {
		late     time.Duration
		from, to uint64
	}{{0, 20, 20}, {2 * ms, 1, 2}, {10 * ms, 1, 2}} {
		l := alone(t)
		for range 20 {
			l.stall(300*ms, c.late)
			l.ack()
			for range 20 {
				l.now += 2 * ms
				l.ack()
			}
		}
		if n := l.timedOut(); n < c.from || n > c.to {
			t.Errorf("with Ticks late by %v, %d of 20 answers after 300 ms came too late, want %d to %d", c.late, n, c.from, c.to)
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
		{265 * ms, 20 * ms, 1}, // looked at at 220 and, once it has had 20 more, at 260
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
