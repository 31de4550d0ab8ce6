package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// TestOneBadItemStopsNoOthers checks that an item that always fails, at the only worker, becomes a
// suspect. While there are other items, it opens no breaker and delays none of them. When only the
// bad item is left, it may open the breaker. Even so, later items are delivered.
func TestOneBadItemStopsNoOthers(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(200 * ms)}, 2, 1)
	turn := func(offer bool) {
		for offer && w.offer(1, 10) {
		}
		w.pass(20 * ms)
		for _, x := range w.running() {
			if x.item.seq == 20 {
				w.answer(x, control.Retryable, 0)
			} else {
				w.answer(x, control.Delivered, 0)
			}
		}
	}
	for range 200 {
		turn(true)
	}
	s := w.m.Status()
	if s.Suspects != 1 || s.Settled < 390 || s.Lanes[0].Fault != 0 {
		t.Fatalf("%d suspects, %d settled, want 1 and nearly 400: %+v", s.Suspects, s.Settled, s.Lanes[0])
	}
	for range 500 { // nothing but the bad item for 10 s
		turn(false)
	}
	settled := w.m.Status().Settled
	for range 100 {
		turn(true)
	}
	if s := w.m.Status(); s.Settled < settled+100 {
		t.Errorf("%d of the items that came later were delivered in 2 s, want 100 at least: %+v",
			s.Settled-settled, s.Lanes[0])
	}
	w.drain()
}

// TestProbesAllowForBadData checks that a failed probe is followed by others at once if a quarter
// of the data is bad. One failure then does not show that the worker is still down.
func TestProbesAllowForBadData(t *testing.T) {
	for every, want := range map[uint64][2]int{0: {1, 1}, 4: {3, 6}} {
		w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(time.Hour)}, 4, 1)
		down := false
		turn := func() (failed int) {
			w.offer(1, 10)
			w.pass(10 * ms)
			for _, x := range w.running() {
				if down || every > 0 && x.item.seq%every == 0 {
					failed++
					w.answer(x, control.Retryable, 0)
				} else {
					w.answer(x, control.Delivered, 0)
				}
			}
			return failed
		}
		for range 400 {
			turn()
			w.pass(5 * ms)
		}
		for down = true; w.m.Status().Lanes[0].State != window.Open; {
			turn()
			w.pass(5 * ms)
		}
		for len(w.running()) == 0 {
			w.offer(1, 10)
			w.pass(20 * ms)
		}
		probes := 0
		for n := turn(); n > 0; n = turn() {
			probes += n
		}
		if probes < want[0] || probes > want[1] {
			t.Errorf("%d probes at once where each %dth item is bad, want %v", probes, every, want)
		}
	}
}

// TestProbesKeepWaits checks that a breaker does not probe with an item before the item's wait is
// over. The only item waits 15 s between attempts.
func TestProbesKeepWaits(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(15 * sec)}, 2, 1)
	w.offer(1, 10)
	for w.now < 60*sec {
		for _, x := range w.running() {
			w.answer(x, control.Retryable, 0)
		}
		w.pass(100 * ms)
	}
	if n := w.items[1].starts; n < 4 || n > 5 {
		t.Errorf("%d attempts in a minute with waits of 15 s, want 4 or 5", n)
	}
	w.drain()
}

// TestWaitingDoesNotStopReading checks that only Config.Waiting bounds the items that wait for
// another attempt, and that the status names this gate when it binds.
func TestWaitingDoesNotStopReading(t *testing.T) {
	w := newLanes(t, control.Config{
		Timeout: -1, Retry: backoff.Fixed(300 * sec), Budget: control.Budget{Share: -1},
		Waiting: control.Waiting{Cost: 500},
	}, 10, 2)
	for range 6000 {
		for w.offer(1, 10) {
		}
		for _, x := range w.running() {
			if x.item.seq%10 == 0 {
				w.answer(x, control.Retryable, 0)
			} else {
				w.answer(x, control.Delivered, 0)
			}
		}
		if w.pass(10 * ms); w.m.Status().Retrying >= 500 {
			break
		}
	}
	s := w.m.Status()
	if s.Retrying < 500 || s.Retrying > 530 || s.Settled < 4000 {
		t.Fatalf("%d wait and %d have settled, want 500 or a few more, and 4,000: %+v", s.Retrying,
			s.Settled, s.Lanes[0])
	}
	if w.m.Room() || s.Lanes[0].Gate != "waiting" {
		t.Errorf("room is %v and the gate %q, want none and waiting", w.m.Room(), s.Lanes[0].Gate)
	}
}

// TestPartialAnswerIsARoundTrip checks that a worker that refuses one record of each item is
// measured like one that accepts all records.
func TestPartialAnswerIsARoundTrip(t *testing.T) {
	for _, partial := range []bool{false, true} {
		w := newModel(t, control.Config{Timeout: -1, Window: window.Queue{}}, 0)
		w.lane(1, true, control.Limits{})
		for range 60 {
			for w.offer(100, 10) {
			}
			w.pass(50 * ms)
			for _, x := range w.running() {
				if !partial {
					w.answer(x, control.Delivered, 0)
					continue
				}
				w.answer(x, control.Split, 0, control.Delivered, control.Rejected)
				w.reply(0, 0)
			}
		}
		if l := w.m.Status().Lanes[0]; l.RoundTrip == 0 || l.Window < 8 {
			t.Errorf("partial answers %v: the round trip is %v and the window %v after 60 "+
				"round trips", partial, l.RoundTrip, l.Window)
		}
	}
}

// TestEnd checks that an item is dead-lettered whole after the number of failures in Config.End, if
// its worker delivers other items. Failures while the worker is down do not count.
func TestEnd(t *testing.T) {
	for _, end := range []control.End{{Attempts: 5}, {Elapsed: 2 * sec}} {
		w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(200 * ms), End: end}, 2, 1)
		play := func(until time.Duration, down bool) {
			for w.now < until && len(w.asked) == 0 {
				for w.offer(1, 10) {
				}
				w.pass(20 * ms)
				for _, x := range w.running() {
					if len(w.asked) > 0 {
						return
					}
					if down || x.item.seq == 20 {
						w.answer(x, control.Retryable, 0)
					} else {
						w.answer(x, control.Delivered, 0)
					}
				}
			}
		}
		play(500*ms, false)
		play(w.now+60*sec, true)
		if len(w.asked) > 0 {
			t.Fatalf("%+v: given up while the worker is down: %+v", end, w.out)
		}
		play(w.now+60*sec, false)
		if len(w.asked) != 1 || !w.asked[0].deadLetter || w.asked[0].seq != 20 {
			t.Fatalf("%+v: asked %+v, want item 20 to be dead-lettered", end, w.asked)
		}
		i := slices.IndexFunc(w.out,
			func(c control.Command) bool { return c.Kind == control.DeadLetter })
		if c := w.out[i]; c.Reason != control.Exhausted || int(c.Count) < 2 || end.Attempts > 0 &&
			int(c.Count) != end.Attempts {
			t.Errorf("%+v: %+v", end, c)
		}
		w.drain()
	}
	if _, err := control.New(control.Config{End: control.End{Attempts: -1}}); err == nil {
		t.Error("New accepts an end after -1 attempts")
	}
}

// TestEndWithLittleTraffic checks that a bad item is dead-lettered after the number of failures in
// Config.End even if other items are rare: none is sent within a few round trips of its failures.
// Before that, outages must not cause a dead letter, because each outage is evidence against one
// item only.
func TestEndWithLittleTraffic(t *testing.T) {
	const bad = 70 // after the outages
	end := control.End{Attempts: 5}
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(200 * ms), End: end}, 4, 1)
	play := func(offers int, down bool) {
		for range offers {
			w.offer(1, 10)
			for range 150 { // round trips
				for _, x := range w.running() {
					if down || x.item.seq == bad {
						w.answer(x, control.Retryable, 0)
					} else {
						w.answer(x, control.Delivered, 0)
					}
				}
				w.pass(2 * ms)
			}
		}
	}
	for range 4 { // outages
		play(4, false)
		play(10, true)
	}
	if len(w.asked) > 0 {
		t.Fatalf("given up because of outages: %+v", w.asked)
	}
	play(80, false)
	if len(w.asked) != 1 || !w.asked[0].deadLetter || w.asked[0].seq != bad {
		t.Fatalf("asked %+v, want item 70 to be dead-lettered", w.asked)
	}
}
