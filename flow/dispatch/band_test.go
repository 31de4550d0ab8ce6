package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestBand checks that the choice is random and uniform among the free lanes with an expected time
// of at most (1 + Band) times the best one. No other lane may be chosen.
func TestBand(t *testing.T) {
	lanes := []Candidate{
		{Lane: 0, Free: true, Known: true, Mean: 1, Rate: 100, Service: 100 * ms},
		{Lane: 1, Free: true, Known: true, Mean: 1, Rate: 50, Service: 109 * ms},
		{Lane: 2, Free: true, Known: true, Mean: 1, Rate: 200, Service: 111 * ms},
		{Lane: 3, Known: true, Mean: 1, Rate: 100, Service: 100 * ms}, // not free
		{Lane: 4, Free: true, Known: true, Mean: 1, Rate: 100, Service: 105 * ms},
	}
	ch := LeastCompletion{Band: 0.1}.New(source(1))
	var n [5]int
	for range 3000 {
		n[ch.Choose(0, 1, 0, lanes)]++
	}
	for i, want := range [5]int{1000, 1000, 0, 0, 1000} {
		if n[i] < want-100 || n[i] > want+100 || want == 0 && n[i] > 0 {
			t.Errorf("lane %d was chosen %d times of 3000, want about %d", i, n[i], want)
		}
	}
	for i := range lanes {
		lanes[i].Free = false
	}
	if got := ch.Choose(0, 1, 0, lanes); got != -1 {
		t.Errorf("none is free and it chose %d", got)
	}
}

// TestBandOff checks that with a Band of 0 the choice does not depend on the seed, if the chosen
// lane has answered before. Only exact ties are decided at random, and the lanes of this test have
// none.
func TestBandOff(t *testing.T) {
	rnd := rand.New(source(7))
	for range 300 {
		lanes := make([]Candidate, 2+rnd.IntN(6))
		for i := range lanes {
			lanes[i] = Candidate{
				Lane: int32(i), Free: true, Known: rnd.IntN(4) > 0, Mean: 1,
				Rate:     1 + 100*rnd.Float64(),
				Service:  time.Duration(1+rnd.IntN(1e9)) * time.Nanosecond,
				Failures: max(0, rnd.Float64()-0.7),
			}
		}
		first := LeastCompletion{}.New(source(1)).Choose(0, 1, 0, lanes)
		known := first >= 0 && lanes[first].Known
		for seed := range uint64(5) {
			if got := (LeastCompletion{}).New(source(seed)).Choose(0, 1, 0, lanes); known &&
				got != first {
				t.Fatalf("another seed chose %d instead of %d of %+v", got, first, lanes)
			}
		}
	}
}
