package window

import (
	"testing"
	"time"
)

// TestStartUpFindsTheSlots simulates workers that serve several batches at once, each in 50 ms. The
// start-up must quickly end near that number, and never far exceed it.
func TestStartUpFindsTheSlots(t *testing.T) {
	for _, slots := range []int{1, 2, 5, 12, 20, 40, 100} {
		w := Queue{}.New().(*queueWindow)
		const base = 50 * ms
		type out struct {
			sent  time.Duration
			ahead float64
			done  float64 // delivered when it was sent
		}
		var fly []out
		delivered, most := 0.0, 0
		now := time.Duration(0)
		rounds := 0
		for ; rounds < 30 && w.Starting(); rounds++ {
			for len(fly) < int(w.Limit()) {
				fly = append(fly, out{now, float64(len(fly) + 1), delivered})
			}
			most = max(most, len(fly))
			now += base
			served := fly[:min(slots, len(fly))]
			fly = append([]out(nil), fly[len(served):]...)
			for _, o := range served {
				delivered++
				w.OnSample(Sample{
					Now: now, RoundTrip: now - o.sent, Cost: 1, InFlightAtSend: o.ahead,
					Done:    delivered - o.done,
					Limited: true, Epoch: w.Epoch(),
				})
				for len(fly) < int(w.Limit()) {
					fly = append(fly, out{now, float64(len(fly) + 1), delivered})
				}
			}
		}
		if w.Starting() || rounds > 12 {
			t.Errorf("%d slots: the start-up took %d round trips: %s", slots, rounds, w.Reason())
		}
		if float64(most) > max(startStep1, startStep2/startStep1*float64(slots)) {
			t.Errorf("%d slots: %d were in flight", slots, most)
		}
		if got := w.Limit(); got < 0.9*float64(slots) || got > 1.6*float64(slots)+1 {
			t.Errorf("%d slots: the window is %v after the start-up: %s", slots, got, w.Reason())
		}
	}
}

// TestStartUpEndsAtTheLoad checks a load that never has more than three batches in flight. The
// first round trips are equal by chance, so the start-up widens the window to 12. When it ends
// because the load does not use the window, the window must be the three batches that the load has
// used.
func TestStartUpEndsAtTheLoad(t *testing.T) {
	w := Queue{}.New().(*queueWindow)
	now := time.Duration(0)
	answer := func(batches int) { // that were sent together
		now += 50 * ms
		limited := batches == int(w.Limit())
		for i := range batches {
			w.OnSample(Sample{
				Now: now, RoundTrip: 50 * ms, Cost: 1, Done: float64(batches),
				InFlightAtSend: float64(i + 1), Limited: limited, Epoch: w.Epoch(),
			})
		}
	}
	for w.Limit() < startStep1 {
		answer(int(w.Limit()))
	}
	for i := 0; i < 100 && w.Starting(); i++ {
		answer(3)
	}
	if got := w.Limit(); w.Starting() || got != 3 {
		t.Errorf("the window is %v after the start-up, want 3: %s", got, w.Reason())
	}
	if got, want := w.Reason(), "the load did not use the window: window 12 to 3"; got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
}

// TestStartUpKeepsTheInitialWindow checks that an unused start-up does not narrow the window below
// its initial size, or below 1 if batches are smaller than the mean.
func TestStartUpKeepsTheInitialWindow(t *testing.T) {
	for _, initial := range []int{0, 1, 5} {
		w := Queue{Initial: initial}.New().(*queueWindow)
		for i := 0; i < 1000 && w.Starting(); i++ {
			w.OnSample(Sample{
				Now: time.Duration(i) * 50 * ms, RoundTrip: 50 * ms, Cost: 1, Mean: 60, Done: 1,
				InFlightAtSend: 1, Epoch: w.Epoch(),
			})
		}
		if got, want := w.Limit(), max(1, float64(initial)); w.Starting() || got != want {
			t.Errorf("the window begins at %d, and is %v after the start-up, want %v: %s", initial,
				got, want, w.Reason())
		}
	}
}

// TestRefusedIsTheLevel checks a worker that refuses batches above a certain number in flight, its
// level. Refused must end the start-up and narrow the window to the level. A level above the window
// has no effect.
func TestRefusedIsTheLevel(t *testing.T) {
	w := Queue{Initial: 25}.New().(*queueWindow)
	w.Refused(time.Second, 20)
	if w.Limit() != 20 || w.Starting() || w.State() != Busy {
		t.Errorf("window %v, starting %v, %v; want 20, false, BUSY", w.Limit(), w.Starting(),
			w.State())
	}
	w.Refused(time.Second, 30)
	if w.Limit() != 20 {
		t.Errorf("window %v, want 20: a level above it says nothing", w.Limit())
	}
}

// TestUndoRestoresTheStartUp checks that a timeout ends the start-up, and that a late answer of the
// timed-out attempt restores it.
func TestUndoRestoresTheStartUp(t *testing.T) {
	w := Queue{Initial: 4}.New().(*queueWindow)
	w.OnTimeout(time.Second, 1)
	if w.Starting() || w.Limit() != 2 {
		t.Errorf("window %v, starting %v; want 2, false", w.Limit(), w.Starting())
	}
	w.OnUndo(time.Second + 100*ms)
	if !w.Starting() || w.Limit() != 4 {
		t.Errorf("window %v, starting %v; want 4, true", w.Limit(), w.Starting())
	}
}
