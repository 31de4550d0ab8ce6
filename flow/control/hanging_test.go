package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
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

// TestOvertakenAttemptsGiveUpTheirPlaces checks that, after an attempt hung, the next hanging
// attempt gives up its place soon after three later ones have been delivered. The round trips vary
// so much that this attempt does not take unusually long yet.
func TestOvertakenAttemptsGiveUpTheirPlaces(t *testing.T) {
	w := newLanes(t, control.Config{}, 6, 1)
	hangs := map[uint64]bool{}
	sent := map[*modelTry]time.Duration{}
	play := func(d time.Duration) {
		for end := w.now + d; w.now < end; {
			for w.offer(1, 0) {
			}
			for _, x := range w.running() {
				if _, known := sent[x]; !known {
					sent[x] = w.now
				}
			}
			w.pass(20 * ms)
			for _, x := range w.running() {
				takes := 40 * ms
				if x.item.seq%3 == 0 {
					takes = 160 * ms
				}
				if at, ok := sent[x]; ok && !hangs[x.item.seq] && w.now-at >= takes {
					w.answer(x, control.Delivered, 0)
				}
			}
		}
	}
	lane := func() control.LaneStatus { return w.m.Status().Lanes[0] }
	hang := func() {
		for w.offer(1, 0) {
		}
		hangs[w.running()[len(w.running())-1].item.seq] = true
	}
	play(2 * sec)
	hang()
	for lane().TimedOut == 0 || lane().Hanging > 0 {
		play(20 * ms)
	}
	hang()
	if l := lane(); l.TimedOut != 1 || l.Hanging != 0 {
		t.Fatalf("%d timed out and %d hang, want the first overdue: %+v", l.TimedOut, l.Hanging, l)
	}
	for range 6 {
		if play(20 * ms); lane().Hanging > 0 {
			break
		}
	}
	if l := lane(); l.TimedOut != 1 || l.Hanging != 1 {
		t.Errorf("%d timed out and %d hang, want the second to give up its place within 120 ms: "+
			"%+v", l.TimedOut, l.Hanging, l)
	}
	clear(hangs)
	w.drain()
}

// TestManyTimeoutsBeforeTheFirstDelivery checks a worker that never delivers. Bad data may be the
// cause of its first eight overdue attempts, so they do not lengthen its timeout. The ninth doubles
// it.
func TestManyTimeoutsBeforeTheFirstDelivery(t *testing.T) {
	w := newLanes(t, control.Config{Window: window.Queue{}}, 64, 1)
	for n := range 9 {
		if l := w.m.Status().Lanes[0]; l.Timeout != sec {
			t.Fatalf("the timeout is %v after %d timeouts, want 1s", l.Timeout, n)
		}
		if !w.offer(1, 0) {
			t.Fatal("no room at a worker whose attempts are all overdue")
		}
		w.pass(2 * sec)
	}
	if l := w.m.Status().Lanes[0]; l.Timeout != 2*sec {
		t.Errorf("the timeout is %v after nine timeouts, want 2s", l.Timeout)
	}
}

// TestTimeoutsBeforeTheFirstDelivery checks that attempts that hang before the first delivery of a
// worker neither lengthen the worker's timeout nor end the start-up of its window.
func TestTimeoutsBeforeTheFirstDelivery(t *testing.T) {
	w := newLanes(t, control.Config{Window: window.Queue{}}, 64, 1)
	for range 3 {
		if !w.offer(1, 0) {
			t.Fatal("no room at a worker whose attempts are all overdue")
		}
		w.pass(2 * sec) // twice the timeout, as in every start-up
	}
	if l := w.m.Status().Lanes[0]; l.TimedOut != 3 || l.Timeout != sec {
		t.Fatalf("%d timed out, and the timeout is %v; want 3 and 1s", l.TimedOut, l.Timeout)
	}
	for range 6 { // round trips, in which the window doubles
		for w.offer(1, 0) {
		}
		w.pass(20 * ms)
		for _, x := range w.running() {
			if x.item.seq > 3 {
				w.answer(x, control.Delivered, 0)
			}
		}
	}
	if l := w.m.Status().Lanes[0]; l.Window < 12 {
		t.Errorf("the window is %v, want at least 12: %s", l.Window, l.Reason)
	}
}

// TestFirstAttempts checks how soon a worker without a delivery gets further attempts if its first
// ones hang. It gets none in the first second. If another worker delivers, the later waits last
// only a few round trips of that worker.
func TestFirstAttempts(t *testing.T) {
	for _, c := range []struct {
		others bool
		after  time.Duration
		want   int
	}{{false, 900 * ms, 1}, {false, 1300 * ms, 3}, {true, 900 * ms, 1}, {true, 1300 * ms, 7}} {
		w := newLanes(t, control.Config{Window: window.Queue{}, Ahead: 1}, 64, 2)
		for range c.after / (20 * ms) {
			for w.offer(1, 0) {
			}
			w.pass(20 * ms)
			for _, x := range w.running() {
				if x.lane == 0 && c.others {
					w.answer(x, control.Delivered, 0)
				}
			}
		}
		if l := w.m.Status().Lanes[1]; l.InFlight != c.want {
			t.Errorf("another worker delivers: %v: %d attempts were sent in %v, want %d", c.others,
				l.InFlight, c.after, c.want)
		}
	}
}

// TestTimeoutsOfALaneThatJoins checks a worker that never answers, beside one that delivers. Its
// first overdue attempt must not lengthen its timeout. Attempts that have run for longer than the
// first wait, but not for the timeout, must not count as timed out. The other worker shows that the
// data is good, so this worker gets only as many attempts as its breaker needs.
func TestTimeoutsOfALaneThatJoins(t *testing.T) {
	w := newLanes(t, control.Config{Window: window.Queue{}, Ahead: 1}, 64, 2)
	for w.now < 2100*ms {
		for w.offer(1, 0) {
		}
		w.pass(20 * ms)
		for _, x := range w.running() {
			if x.lane == 0 {
				w.answer(x, control.Delivered, 0)
			}
		}
	}
	l := w.m.Status().Lanes[1]
	if l.TimedOut != 1 || l.Timeout != sec {
		t.Errorf("%d timed out, and the timeout is %v; want 1 and 1s", l.TimedOut, l.Timeout)
	}
	if l.InFlight > 8 {
		t.Errorf("a worker that never answered has %d attempts, want at most 8", l.InFlight)
	}
}
