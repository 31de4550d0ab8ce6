package window

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestWaitsAreEstimated checks the estimate of the time that calls wait at the worker, for all
// kinds of service times and all speeds of the worker.
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

// TestProbesOutweighNothing ends a probe with more samples than maxWaits, all of the same weight.
// The mean weight of round trips without a queue (drained) must then equal this weight: the probe
// replaces the earlier mean, but its share must not exceed 1.
func TestProbesOutweighNothing(t *testing.T) {
	var w waits
	for range 4 * maxWaits {
		w.probed.add(1)
	}
	w.endProbe()
	if want := math.Exp(-1 / waitsWidth); math.Abs(w.drained-want) > 1e-9 {
		t.Errorf("the mean weight is %v, want %v", w.drained, want)
	}
	if w.n != maxWaits {
		t.Errorf("%v samples, want %d", w.n, maxWaits)
	}
}

// TestSpeedChangesInTheMiddleOfARound checks a round in which the worker slows down. The mean round
// trip is long, but some round trips are as short as without a queue. The next round must decide
// whether the speed has changed.
func TestSpeedChangesInTheMiddleOfARound(t *testing.T) {
	for name, c := range map[string]struct {
		next  float64 // mean service time in the round after
		moves bool
	}{
		"slower": {4, true}, "a few long calls": {1, false},
	} {
		random := rand.New(rand.NewPCG(1, 1))
		d := newDelay(8, 100, false)
		d.base.short, d.base.value, d.inFlight = true, 1, 8
		for range maxWaits {
			d.base.waits.probed.add(random.ExpFloat64())
		}
		d.base.waits.endProbe()
		round := func(calls int, mean func(i int) float64) {
			d.nextRound()
			for i := range calls {
				x := mean(i) * random.ExpFloat64()
				d.round.n++
				d.round.sum += x
				d.round.sq += x * x
				d.round.inFlight += d.inFlight
				d.base.waits.add(x/d.base.value, x)
			}
		}
		for range 10 {
			round(maxRound, func(int) float64 { return 1 })
			if d.round.smooth(); d.followSpeed() {
				t.Fatalf("%s: an even load changed the base", name)
			}
		}
		round(maxRound, func(i int) float64 {
			if i >= maxRound/2 {
				return 8
			}
			return 0.7
		})
		if d.followSpeed() || d.base.waits.meanBefore == 0 {
			t.Fatalf("%s: no doubt after a round that changed in the middle", name)
		}
		d.round.smooth()
		round(maxRound, func(int) float64 { return c.next })
		moved, doubted := d.followSpeed(), d.base.waits.meanBefore
		if moved != c.moves || moved == (d.base.value < 2) || doubted != 0 {
			t.Errorf("%s: base %.2f, followed %v; want %v", name, d.base.value, moved, c.moves)
		}
	}
}

// TestWaitsAfterAChangeOfSpeed checks the estimate of the time that calls wait at the worker, after
// the service has become slower or faster while the network kept its speed. A round trip consists
// of both.
func TestWaitsAfterAChangeOfSpeed(t *testing.T) {
	for _, c := range []struct {
		name                       string
		network, service, becoming float64 // in seconds
	}{
		{"fourfold slower", 0.002, 0.02, 0.08},
		{"four times faster", 0.002, 0.08, 0.02},
		{"the network's share is a half", 0.02, 0.02, 0.04},
		{"no network", 0, 0.02, 0.08},
	} {
		random := rand.New(rand.NewPCG(1, 1))
		w := waits{network: c.network}
		base, roundTrip := c.network+c.service, func(service float64) float64 {
			return c.network + service*random.ExpFloat64()
		}
		for range 20 {
			for range 1000 {
				w.probed.add(roundTrip(c.service) / base)
			}
			w.endProbe()
		}
		next := c.network + c.becoming
		for part := 1.0; part <= 3; part++ { // the base follows in steps
			to := base + (next-base)*part/3
			w.rescale(base+(next-base)*(part-1)/3, to)
		}
		for _, want := range []float64{0, 0.1} {
			w.round = weights{}
			for range 20000 {
				x := roundTrip(c.becoming) + want*next
				w.add(x/next, x)
			}
			if got := w.wait(); math.Abs(got-want) > 0.01 {
				t.Errorf("%s: a wait of %.3f of the base instead of %.1f", c.name, got, want)
			}
		}
	}
}

// TestWaitsAfterABetterEstimate checks that the estimated wait is right even if the base, the round
// trip without a queue, was estimated wrongly during the probes.
func TestWaitsAfterABetterEstimate(t *testing.T) {
	const base = 0.02
	for _, wrong := range []float64{0.8, 0.95, 1.05, 1.2} {
		random := rand.New(rand.NewPCG(1, 1))
		var w waits
		for range 20 {
			for range 1000 {
				w.probed.add(random.ExpFloat64() / wrong)
			}
			w.endProbe()
		}
		for part := 1.0; part <= 4; part++ { // several probes refine the base
			step := (1 - wrong) * base / 4
			w.refine(wrong*base+step*(part-1), wrong*base+step*part)
		}
		for _, want := range []float64{0, 0.1} {
			w.round = weights{}
			for range 20000 {
				x := random.ExpFloat64() + want
				w.add(x, x*base)
			}
			if got := w.wait(); math.Abs(got-want) > 0.01 {
				t.Errorf("a base of %v times the right one: a wait of %.3f instead of %.1f",
					wrong, got, want)
			}
		}
	}
}
