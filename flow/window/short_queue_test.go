package window

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestWaitsAreEstimated: the estimate follows the wait for all kinds of service times, and for all
// speeds of the worker.
func TestWaitsAreEstimated(t *testing.T) {
	for name, service := range map[string]func(*rand.Rand) float64{
		"exponential": func(r *rand.Rand) float64 { return r.ExpFloat64() },
		"uniform":     func(r *rand.Rand) float64 { return 0.5 + r.Float64() },
		"lognormal":   func(r *rand.Rand) float64 { return math.Exp(0.8*r.NormFloat64() - 0.32) },
	} {
		for _, base := range []float64{0.001, 20} {
			random := rand.New(rand.NewPCG(1, 1))
			var w waits
			for range 5 {
				for range 200 {
					w.probed.add(service(random))
				}
				w.endProbe()
			}
			for _, want := range []float64{0, 0.1, 0.3} {
				w.round = weights{}
				for range 2000 {
					x := service(random) + want
					w.add(x, x*base)
				}
				if got := w.wait(); math.Abs(got-want) > 0.04 {
					t.Errorf("%s: a wait of %.3f of the base instead of %.1f", name, got, want)
				}
				w.endRound()
			}
			if w.network > base {
				t.Errorf("%s: %v in the network, want at most the base %v", name, w.network, base)
			}
		}
	}
}

// TestProbesOutweighNothing: a probe of more samples than the average keeps counts once.
func TestProbesOutweighNothing(t *testing.T) {
	var w waits
	for range 4 * waitsMost {
		w.probed.add(1)
	}
	w.endProbe()
	if want := math.Exp(-1 / waitsWidth); math.Abs(w.drained-want) > 1e-9 {
		t.Errorf("the mean weight is %v, want %v", w.drained, want)
	}
	if w.n != waitsMost {
		t.Errorf("%v samples, want %d", w.n, waitsMost)
	}
}
