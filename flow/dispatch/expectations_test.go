package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCachedExpectationsChooseTheSame checks that a chooser with cached expectations makes the same
// choices as one without, including random ones.
func TestCachedExpectationsChooseTheSame(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		policy := LeastCompletion{Band: []float64{0, 0, 0.1}[seed%3]}
		told, untold := policy.New(source(seed)).(*leastCompletion), policy.New(source(seed))
		lanes := make([]Candidate, 1+rnd.IntN(30))
		told.Changed(-1, lanes)
		now, kept := time.Duration(0), 0
		for step := range 3000 {
			now += time.Duration(rnd.IntN(20)) * ms
			for range rnd.IntN(4) {
				i := rnd.IntN(len(lanes))
				lanes[i] = drawLane(rnd, now)
				told.Changed(i, lanes)
			}
			if rnd.IntN(200) == 0 {
				lanes = append(lanes[:0:0], lanes[rnd.IntN(len(lanes)):]...)
				lanes = append(lanes, drawLane(rnd, now))
				told.Changed(-1, lanes)
			}
			cost := 1.0
			if rnd.IntN(50) == 0 {
				cost = 2
			}
			got, want := told.Choose(now, cost, 0, lanes), untold.Choose(now, cost, 0, lanes)
			if got != want {
				t.Fatalf("seed %d, step %d: chose %d, want %d of %+v", seed, step, got, want, lanes)
			}
			if told.cache.filled {
				kept++
			}
			if got >= 0 {
				k := &lanes[got]
				k.LastStart, k.InFlight, k.Work,
					k.Free = now, k.InFlight+1, k.Work+cost, rnd.IntN(3) > 0
				told.Changed(got, lanes)
			}
		}
		if kept < 1000 {
			t.Errorf("seed %d: the expectations were kept at %d of 3000 steps only", seed, kept)
		}
	}
}

// drawLane draws from few values, so that lanes tie.
func drawLane(rnd *rand.Rand, now time.Duration) Candidate {
	k := Candidate{Free: rnd.IntN(4) > 0, Known: rnd.IntN(20) > 0, InFlight: rnd.IntN(3),
		LastStart: now - time.Duration(rnd.IntN(1500))*ms}
	k.Work = float64(k.InFlight)
	if k.Known {
		k.Mean, k.Service = float64(1+rnd.IntN(2)), time.Duration(10+10*rnd.IntN(4))*ms
		if rnd.IntN(5) > 0 {
			k.Rate = float64(50 * (1 + rnd.IntN(3)))
		}
		if rnd.IntN(10) == 0 {
			k.Failures = 0.2
		}
	}
	return k
}
