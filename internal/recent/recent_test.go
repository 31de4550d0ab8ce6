package recent

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestWindow compares a Window with a list of all events.
func TestWindow(t *testing.T) {
	const length = time.Second
	random := rand.New(rand.NewPCG(1, 2))
	w := New(length)
	type event struct {
		at    time.Duration
		which int
	}
	var events []event
	now := time.Duration(0)
	for range 2000 {
		now += time.Duration(random.ExpFloat64() * float64(length/20))
		if random.IntN(100) == 0 {
			now += 3 * length
		}
		which := random.IntN(2)
		w.Add(now, which, 1)
		events = append(events, event{now, which})
		want := [2]int64{}
		for _, e := range events {
			if now/(length/Parts)-e.at/(length/Parts) < Parts {
				want[e.which]++
			}
		}
		if got := w.Sums(now); got != want {
			t.Fatalf("at %v: %v, want %v", now, got, want)
		}
	}
	w.Clear()
	w.Add(now, 1, 2)
	w.TakeOut(now, 1)
	w.TakeOut(now, 0) // there is none
	if got := w.Sums(now); got != [2]int64{0, 1} {
		t.Errorf("after Clear: %v, want [0 1]", got)
	}
	w.TakeOut(now+length/2, 1) // the newest part has none
	if got := w.Sums(now + length/2); got != [2]int64{0, 1} {
		t.Errorf("after a late TakeOut: %v, want [0 1]", got)
	}
}

func TestShortestAndLongest(t *testing.T) {
	for _, length := range []time.Duration{0, 1, math.MaxInt64} {
		w := New(length)
		w.Add(math.MaxInt64, 0, 1)
		if got := w.Sums(math.MaxInt64); got != [2]int64{1, 0} {
			t.Errorf("window of %v: %v, want [1 0]", length, got)
		}
	}
}
