package kernel_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/kernel"
)

type event struct {
	at    time.Duration
	last  bool
	order int
}

// TestOrder checks the order of the events: by time; at one time, events of At before events of
// AtEnd; among these, in the order of their scheduling.
func TestOrder(t *testing.T) {
	var k kernel.Kernel[event]
	rnd := kernel.Rand(1, 2)
	var want, got []event
	take := func(until time.Duration) {
		for {
			e, ok := k.Next(until)
			if !ok {
				return
			}
			if k.Now() != e.at {
				t.Fatalf("the clock is %v at the event of %v", k.Now(), e.at)
			}
			got = append(got, e)
		}
	}
	for i := range 2000 {
		e := event{k.Now() + time.Duration(rnd.IntN(40)), rnd.IntN(4) == 0, i}
		want = append(want, e)
		if e.last {
			k.AtEnd(e.at, e)
		} else {
			k.At(e.at, e)
		}
		if i%100 == 99 {
			take(k.Now() + 10)
		}
	}
	take(time.Hour)
	if _, ok := k.Due(); ok || len(got) != len(want) {
		t.Fatalf("%d of %d events came", len(got), len(want))
	}
	if !slices.IsSortedFunc(got, func(a, b event) int { return cmp.Compare(a.at, b.at) }) {
		t.Error("events are not in order of time")
	}
	for i := 1; i < len(got); i++ {
		a, b := got[i-1], got[i]
		if a.at == b.at && a.last == b.last && a.order > b.order {
			t.Errorf("event %d came before event %d of the same time", a.order, b.order)
		}
	}
}

func TestAdvance(t *testing.T) {
	var k kernel.Kernel[int]
	k.Advance(5)
	k.After(3, 1)
	if due, ok := k.Due(); !ok || due != 8 {
		t.Errorf("an event 3 after 5 is due at %d, %v", due, ok)
	}
	if _, ok := k.Next(7); ok || k.Now() != 5 {
		t.Errorf("an event came before its time, at %d", k.Now())
	}
}

func TestOneInstant(t *testing.T) {
	var k kernel.Kernel[string]
	k.At(2, "later")
	k.AtEnd(1, "end")
	k.At(1, "first")
	k.At(1, "second")
	var got []string
	for {
		e, ok := k.Next(1)
		if !ok {
			break
		}
		if got = append(got, e); e == "first" {
			k.At(1, "third")
		}
	}
	if want := []string{"first", "second", "third", "end"}; !slices.Equal(got, want) ||
		k.Now() != 1 {
		t.Errorf("%v at %v, want %v at 1", got, k.Now(), want)
	}
	if due, ok := k.Due(); !ok || due != 2 {
		t.Errorf("next is due at %v, %v", due, ok)
	}
}
