package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// ordered returns a model with Ordered lanes.
func ordered(t *testing.T, lanes int) *model {
	t.Helper()
	w := newLanes(t, control.Config{Timeout: -1}, 4, 0)
	for i := range lanes {
		w.lane(int32(i), true, control.Limits{InFlight: 4, Ordered: true})
	}
	return w
}

func TestKeysOnPlainLanes(t *testing.T) {
	w := newLanes(t, control.Config{}, 4, 3)
	w.offer(1, 1, 1)    // item 1
	w.offer(1, 1, 1, 2) // item 2 waits for 1
	w.offer(1, 1, 2)    // item 3 waits for 2
	w.offer(1, 1, 3)    // item 4 waits for none
	if s := w.m.Status(); s.InFlight != 2 || s.Waiting != 2 {
		t.Fatalf("%d in flight, %d waiting; want 2 and 2", s.InFlight, s.Waiting)
	}
	w.answer(w.only(1), control.Delivered, 0)
	w.answer(w.only(2), control.Delivered, 0)
	w.only(3)
	w.drain()
}

// TestBlockedItemsHideNoOther checks that an item starts even if thousands of items of another key
// wait before it.
func TestBlockedItemsHideNoOther(t *testing.T) {
	w := newLanes(t, control.Config{Ahead: 5000}, 4, 2)
	for range 3000 {
		w.offer(1, 1, 1)
	}
	w.offer(1, 1, 2)
	w.only(3001)
	if s := w.m.Status(); s.InFlight != 2 || s.Waiting != 2999 || s.WaitingCost != 2999 {
		t.Fatalf("%d in flight, %d of cost %v waiting; want 2 and 2999", s.InFlight, s.Waiting, s.WaitingCost)
	}
}

// TestReadingContinuesBehindFailedKeys checks that the machine continues to request items while one
// key fails. Items behind a failing item of their key count against Config.Waiting, and not against
// Config.Ahead, which is smaller.
func TestReadingContinuesBehindFailedKeys(t *testing.T) {
	w := newLanes(t, control.Config{
		Ahead: 4, Waiting: control.Waiting{Cost: 20}, Retry: backoff.Fixed(time.Hour),
	}, 4, 2)
	w.offer(1, 1, 1)
	w.answer(w.only(1), control.Retryable, 0)
	w.answer(w.only(1), control.Retryable, 0)
	for i := range 19 {
		if !w.m.Room() {
			t.Fatalf("no room with %d followers", i)
		}
		w.offer(1, 1, 1)
		if i == 10 {
			w.offer(1, 1, 2)
			w.answer(w.only(w.seq), control.Delivered, 0)
		}
	}
	if w.m.Room() {
		t.Fatal("room for more than Waiting allows")
	}
}

func TestRunOnAnOrderedLane(t *testing.T) {
	w := ordered(t, 2)
	for range 4 {
		w.offer(1, 1, 9)
	}
	tries := w.running()
	if len(tries) != 4 {
		t.Fatalf("%d in flight, want all four on one lane", len(tries))
	}
	for i, x := range tries {
		if x.lane != tries[0].lane || x.place != uint32(i) {
			t.Fatalf("attempt %d is place %d of lane %d", i, x.place, x.lane)
		}
	}
	// Item 2 is answered first, but settles after item 1.
	w.answer(tries[1], control.Delivered, 0)
	if len(w.out) != 0 {
		t.Fatalf("settled out of order: %+v", w.out)
	}
	w.answer(tries[0], control.Delivered, 0)
	if len(w.out) != 2 || w.out[0].Seq != 1 || w.out[1].Seq != 2 {
		t.Fatalf("got %+v, want items 1 and 2 settled", w.out)
	}
	// Item 3 fails, so item 4 of the same run must fail, too. Until both have returned, their lane
	// starts nothing: item 5 goes to the other lane. Then both are sent again in a new run.
	w.answer(tries[2], control.Retryable, 0)
	w.offer(1, 1, 8)
	if x := w.only(5); x.lane == tries[0].lane {
		t.Fatal("started on a lane whose run has failed")
	}
	w.answer(tries[3], control.Retryable, 0)
	if a, b := w.only(3), w.only(4); a.lane != b.lane || a.place > b.place {
		t.Fatalf("items 3 and 4 come again as lane %d place %d and lane %d place %d", a.lane, a.place, b.lane, b.place)
	}
	if s := w.m.Status().Lanes[tries[0].lane]; s.Failed != 1 {
		t.Errorf("%d failures count, want the first of the run alone", s.Failed)
	}
	w.drain()
}

// TestNextRunBeginsWithTheFailedItem checks an Ordered lane after a failure, if it is the only
// lane. Its next run must begin with the failed item, and not with a later item of another key.
func TestNextRunBeginsWithTheFailedItem(t *testing.T) {
	w := ordered(t, 1)
	w.offer(1, 1, 1)
	w.offer(1, 1, 2)
	run := w.only(1).run
	w.answer(w.only(1), control.Retryable, 0)
	w.answer(w.only(2), control.Retryable, 0)
	w.offer(1, 1, 3)
	w.wantIdle() // item 1 waits for its retry, and the others for item 1
	w.pass(100 * ms)
	tries := w.running()
	if len(tries) != 3 || tries[0].item.seq != 1 || tries[0].place != 0 || tries[0].run == run {
		t.Fatalf("the next run begins with %+v", tries[0])
	}
	w.drain()
}

func TestKeysBoundToDifferentLanesWait(t *testing.T) {
	w := ordered(t, 2)
	w.offer(1, 1, 1)
	w.offer(1, 1, 2)
	a, b := w.only(1), w.only(2)
	if a.lane == b.lane {
		t.Fatal("round robin put both on one lane")
	}
	w.offer(1, 1, 1, 2)
	if s := w.m.Status(); s.Waiting != 1 {
		t.Fatalf("item 3 does not wait: %+v", s)
	}
	w.answer(a, control.Delivered, 0)
	if x := w.only(3); x.lane != b.lane {
		t.Errorf("item 3 is on lane %d, want behind item 2 on lane %d", x.lane, b.lane)
	}
	w.drain()
}

func TestFailureBeforeAnswersBehindIt(t *testing.T) {
	w := ordered(t, 1)
	for range 3 {
		w.offer(1, 1, 1)
	}
	tries := w.running()
	// The receiver refuses the third attempt because it refused the second. The answer of the third
	// comes first.
	w.answer(tries[2], control.Retryable, 0)
	w.answer(tries[1], control.Retryable, 0)
	w.answer(tries[0], control.Delivered, 0)
	if s := w.m.Status(); s.Settled != 1 || s.Lanes[0].Failed != 1 {
		t.Errorf("%d settled, %d failures; want 1 and 1", s.Settled, s.Lanes[0].Failed)
	}
	w.pass(100 * ms)
	w.drain()
}

func TestRejectedInARun(t *testing.T) {
	w := ordered(t, 1)
	for range 3 {
		w.offer(2, 2, 1)
	}
	tries := w.running()
	w.answer(tries[0], control.Rejected, 0)
	w.answer(tries[1], control.Retryable, 0)
	w.answer(tries[2], control.Retryable, 0)
	w.wantIdle()
	w.reply(0, 2)
	got := w.running()
	if len(got) != 4 || got[0].item.seq != 4 || got[1].item.seq != 5 || got[2].item.seq != 2 {
		t.Fatalf("%d attempts, want the two pieces before items 2 and 3", len(got))
	}
	w.drain()
}

// TestHardLimitDoesNotWidenTheWindow checks that a window does not grow while another limit is
// lower.
func TestHardLimitDoesNotWidenTheWindow(t *testing.T) {
	w := newLanes(t, control.Config{Window: window.Linear{Threshold: sec}}, 0, 0)
	w.lane(0, true, control.Limits{InFlight: 3})
	for range 400 {
		w.fill()
		w.now += ms
		w.answer(w.running()[0], control.Delivered, 0)
	}
	w.fill()
	// The window may exceed the limit of 3 by two batches: by its last step of growth, and by one
	// more for samples of attempts that were sent before that step.
	if s := w.m.Status().Lanes[0]; s.Window > 5 || s.Gate != "limit" {
		t.Errorf("window %v, gate %q; want at most 5 at a limit of 3, which binds", s.Window, s.Gate)
	}
	w.drain()
}

// TestFewAreLookedAt checks that an ack checks at most one item for each key, even if many wait.
func TestFewAreLookedAt(t *testing.T) {
	for _, limits := range []control.Limits{{}, {InFlight: 8, Ordered: true}} {
		const keys = 4
		l := newKeyed(t, 12, keys, limits, control.Config{Window: window.Fixed{Size: 8}, Ahead: 5000})
		for range 10_000 {
			l.ack()
			if n := l.m.Able(); n > keys {
				t.Fatalf("with %+v, %d of %d items that wait are looked at, want at most one for each of %d keys",
					limits, n, l.m.Status().Waiting, keys)
			}
		}
	}
}
