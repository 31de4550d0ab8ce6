package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// TestHangingAttemptsGiveUpTheirPlaces checks that, after an attempt hung while later ones were
// delivered, the next hanging attempt gives up its place in the window before it is overdue. While
// nothing is delivered, only a few attempts give up their places.
func TestHangingAttemptsGiveUpTheirPlaces(t *testing.T) {
	w := newLanes(t, control.Config{}, 4, 1)
	hangs := map[uint64]bool{}
	play := func(d time.Duration) {
		for end := w.now + d; w.now < end; {
			for w.offer(1, 0) {
			}
			w.pass(20 * ms)
			for _, x := range w.running() {
				if !hangs[x.item.seq] {
					w.answer(x, control.Delivered, 0)
				}
			}
		}
	}
	lane := func() control.LaneStatus { return w.m.Status().Lanes[0] }
	play(2 * sec)
	for w.offer(1, 0) {
	}
	first := w.running()[0]
	hangs[first.item.seq] = true
	play(lane().Timeout + 200*ms)
	if l := lane(); l.TimedOut != 1 || l.Hanging != 0 {
		t.Fatalf("%d timed out and %d hang, want the first overdue: %+v", l.TimedOut, l.Hanging, l)
	}
	for w.offer(1, 0) {
	}
	second := w.running()[len(w.running())-1]
	hangs[second.item.seq] = true
	play(lane().Timeout - 40*ms)
	if l := lane(); l.TimedOut != 1 || l.Hanging != 1 || l.InFlight < 2 {
		t.Errorf("%d timed out and %d hang, want the second to give up its place before it is "+
			"overdue: %+v", l.TimedOut, l.Hanging, l)
	}
	play(sec)
	if l := lane(); l.TimedOut != 2 || l.Hanging != 0 {
		t.Errorf("%d timed out and %d hang, want both overdue", l.TimedOut, l.Hanging)
	}
	for seq := uint64(1); seq < 10_000; seq++ {
		hangs[seq] = true
	}
	for w.offer(1, 0) {
	}
	started := w.m.Status().Attempts
	play(150 * ms)
	if n := w.m.Status().Attempts - started; n > 12 {
		t.Errorf("%d more attempts at a worker that hangs, want a few", n)
	}
	clear(hangs)
	w.drain()
}
