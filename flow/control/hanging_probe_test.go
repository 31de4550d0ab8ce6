package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// probing is a model with one lane and an open breaker. Attempts hung before the breaker opened.
type probing struct {
	*model
	known map[uint64]bool // attempts before the probe that nextProbe returns
}

func newProbing(t *testing.T) *probing {
	t.Helper()
	w := &probing{newLanes(t, control.Config{}, 4, 1), map[uint64]bool{}}
	hangs := map[uint64]bool{300: true, 320: true, 330: true, 335: true} // sequence numbers
	round := func(d time.Duration, outcome control.Outcome) {
		for w.offer(1, 0) {
		}
		w.pass(d)
		for _, x := range w.running() {
			if !hangs[x.item.seq] {
				w.answer(x, outcome, 0)
			}
		}
	}
	for range 100 {
		round(20*ms, control.Delivered)
	}
	for n := 0; n < 400 && w.status().State != window.Open; n++ {
		round(2*ms, control.Retryable)
	}
	if w.status().State != window.Open {
		t.Fatalf("the breaker is not open: %+v", w.status())
	}
	for _, x := range w.running() {
		w.known[x.id] = true
	}
	return w
}

func (w *probing) status() control.LaneStatus { return w.m.Status().Lanes[0] }

// nextProbe returns the next probe, which must start within the time d.
func (w *probing) nextProbe(d time.Duration) *modelTry {
	w.t.Helper()
	for end := w.now + d; ; w.pass(ms) {
		for _, x := range w.running() {
			if !w.known[x.id] {
				w.known[x.id] = true
				return x
			}
		}
		if w.now >= end {
			w.t.Fatalf("no probe in %v: %+v", d, w.status())
		}
	}
}

// hangingProbe returns a probe that has just given up its place in the window. The next probe has
// followed it.
func (w *probing) hangingProbe() *modelTry {
	w.t.Helper()
	probe := w.nextProbe(4 * sec)
	streak, hanging := w.status().Streak, w.status().Hanging
	w.nextProbe(100 * ms)
	l := w.status()
	if l.Hanging != hanging+1 || l.Streak != streak || probe.overdue {
		w.t.Fatalf("%d attempts hang and the streak is %d, want %d and %d: %+v", l.Hanging, l.Streak,
			hanging+1, streak, l)
	}
	return probe
}

// TestHangingProbe checks a probe that gives up its place in the window because it hangs: the next
// probe follows, and the answer of the first one still counts as that of a probe.
func TestHangingProbe(t *testing.T) {
	for name, outcome := range map[string]control.Outcome{
		"delivered": control.Delivered, "429": control.Throttled,
	} {
		t.Run(name, func(t *testing.T) {
			w := newProbing(t)
			w.answer(w.hangingProbe(), outcome, 0)
			if l := w.status(); l.Streak != 0 || l.State == window.Open || l.State == window.Probing {
				t.Errorf("the lane is %v with a streak of %d after the answer of the probe, want "+
					"its breaker closed: %+v", l.State, l.Streak, l)
			}
			w.drain()
		})
	}
}

// TestHangingProbeTimesOut checks that a probe that gave up its place, and is overdue later, counts
// once in the streak, and that its late delivery does not close the breaker.
func TestHangingProbeTimesOut(t *testing.T) {
	w := newProbing(t)
	probe := w.hangingProbe()
	before := w.status()
	for !probe.overdue && w.now < 10*sec {
		w.pass(ms)
	}
	if l := w.status(); l.TimedOut != before.TimedOut+1 || l.Streak != before.Streak+1 {
		t.Errorf("%d attempts timed out and the streak is %d, want %d and %d: %+v", l.TimedOut,
			l.Streak, before.TimedOut+1, before.Streak+1, l)
	}
	w.answer(probe, control.Delivered, 0)
	if l := w.status(); l.State != window.Open && l.State != window.Probing {
		t.Errorf("the lane is %v after a late delivery, want its breaker open", l.State)
	}
	w.drain()
}

// TestCanceledProbe checks that a canceled probe that gives up its place is not followed by another
// one before it has returned.
func TestCanceledProbe(t *testing.T) {
	w := newProbing(t)
	probe := w.nextProbe(4 * sec)
	for i, it := range w.order {
		if it == probe.item {
			w.withdraw(i, true)
			break
		}
	}
	if !probe.canceled {
		t.Fatal("the probe of an aborted item is not canceled")
	}
	started := w.m.Status().Attempts
	w.pass(150 * ms)
	if n := w.m.Status().Attempts - started; n != 0 {
		t.Errorf("%d attempts were sent while the canceled probe was running: %+v", n, w.status())
	}
	w.answer(probe, control.Retryable, 0)
	w.nextProbe(4 * sec)
	w.drain()
}
