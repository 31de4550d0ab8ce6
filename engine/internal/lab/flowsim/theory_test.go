package flowsim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// TestThroughputIsMeanValueAnalysis checks the closed form of throughput. It compares the results
// with the recursion of Reiser and Lavenberg for one server, and with published figures.
func TestThroughputIsMeanValueAnalysis(t *testing.T) {
	for _, think := range []float64{0, 0.001, 0.01, 0.2} {
		const rate = 100.0
		queued := 0.0
		for w := 1; w <= 300; w++ {
			r := (1 + queued) / rate
			x := float64(w) / (think + r)
			queued = x * r
			near(t, fmt.Sprintf("throughput of %d with a think time of %g", w, think),
				throughput(w, 1, rate, think), x, 1e-9)
		}
	}
	for w, want := range []float64{0, 50, 80, 93.75, 98.46, 99.69} {
		if w > 0 {
			near(t, fmt.Sprintf("throughput of %d", w), throughput(w, 1, 100, 0.01),
				want, 1e-4)
		}
	}
	// With fewer in flight than slots nobody waits.
	for w := 1; w <= 8; w++ {
		near(t, fmt.Sprintf("throughput of %d at 8 slots", w), throughput(w, 8, 80, 0.1),
			float64(w)/(0.1+0.1), 1e-9)
	}
}

func TestClosedNetwork(t *testing.T) {
	for _, c := range []struct {
		slots, window int
	}{{1, 1}, {1, 2}, {1, 3}, {1, 5}, {4, 3}, {4, 6}, {8, 16}} {
		t.Run(fmt.Sprintf("%d slots, window %d", c.slots, c.window), func(t *testing.T) {
			s := parse(t, one("600s", fmt.Sprintf("{ rate: 100, slots: %d }", c.slots),
				"exponential", "{ rtt: 10ms }", "saturated"))
			f := run(t, s, fmt.Sprintf("fixed:%d", c.window), 1)
			want := throughput(c.window, c.slots, 100, 0.01)
			near(t, "rate", f[scenario.RateMean], want, 0.02)
			near(t, "in flight", f[scenario.InFlightMean], float64(c.window), 0.001)
			near(t, "round trip (Little)", f[scenario.RTTMean],
				1000*float64(c.window)/f[scenario.RateMean], 0.002)
		})
	}
}

// erlangC is the probability that a batch must wait at c servers. The parameter a, the load, is the
// mean number of busy servers.
func erlangC(c int, a float64) float64 {
	sum, term := 0.0, 1.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	last := term * float64(c) / (float64(c) - a)
	return last / (sum + last)
}

func TestOpenQueues(t *testing.T) {
	const rate, rho = 100.0, 0.6
	pollaczek := func(squaredVariation float64) float64 { // mean time in an M/G/1 queue, ms
		return 1000/rate + 1000*rho/rate*(1+squaredVariation)/(2*(1-rho))
	}
	for _, c := range []struct {
		name, service string
		slots         int
		mean, p99     float64 // ms; p99 0: not known in closed form
	}{
		{"M/M/1", "exponential", 1, 1000 / (rate * (1 - rho)),
			1000 * math.Log(100) / (rate * (1 - rho))},
		{"M/D/1", "deterministic", 1, pollaczek(0), 0},
		{"M/H2/1", "hyper", 1, pollaczek(4.6445), 0},
		{"M/M/4", "exponential", 4, 4000/rate + 1000*erlangC(4, 4*rho)/(rate*(1-rho)), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, one("1500s", fmt.Sprintf("{ rate: %g, slots: %d }", rate, c.slots),
				c.service, "{ rtt: 0s }",
				fmt.Sprintf("{ poisson: %g }", rho)))
			var mean, p99 float64
			const seeds = 3
			for seed := range uint64(seeds) {
				f := run(t, s, "fixed:100000", seed)
				mean += f[scenario.RTTMean] / seeds
				p99 += f[scenario.LatencyP99] / seeds
				near(t, "rate", f[scenario.RateMean], rate*rho, 0.01)
				near(t, "in flight (Little)", f[scenario.InFlightMean],
					f[scenario.RateMean]*f[scenario.RTTMean]/1000, 0.005)
			}
			near(t, "mean round trip", mean, c.mean, 0.02)
			if c.p99 > 0 {
				near(t, "p99", p99, c.p99, 0.03)
			}
		})
	}
}

// TestDeterministicIsExact checks that runs with constant times match the theory exactly.
func TestDeterministicIsExact(t *testing.T) {
	for _, c := range []struct {
		window       int
		rate, rttMin float64
	}{{1, 50, 20}, {2, 100, 20}, {3, 100, 30}, {7, 100, 70}} {
		s := parse(t, one("60s", "{ rate: 100 }", "deterministic", "{ rtt: 10ms }", "saturated"))
		f := run(t, s, fmt.Sprintf("fixed:%d", c.window), 1)
		if f[scenario.RateMean] < c.rate*0.9995 || f[scenario.RateMean] > c.rate*1.0005 ||
			f[scenario.RTTMax] != c.rttMin ||
			f[scenario.RTTP50] != c.rttMin {
			t.Errorf("window %d: %g/s, round trip %g to %g ms; want %g/s, %g ms",
				c.window, f[scenario.RateMean], f[scenario.RTTP50], f[scenario.RTTMax], c.rate,
				c.rttMin)
		}
	}
	f := run(t, parse(t, "duration: 20s\nworkers: [ { rate: 10, slots: 5 } ]\nservice: "+
		"deterministic\n"+
		"load: { batches: 20 }\ntimeout: 1h"), "fixed:100+round_robin", 1)
	if f[scenario.Finish] != 2 {
		t.Errorf("20 batches at 5 slots of 500 ms each take %g s, want 2", f[scenario.Finish])
	}
}

// TestNetwork checks that rtt plus jitter is the mean round trip of the network.
func TestNetwork(t *testing.T) {
	s := parse(t, one("4000s", "{ rate: 1e4 }", "deterministic", "{ rtt: 50ms, jitter: 20ms }",
		"saturated"))
	near(t, "round trip", run(t, s, "fixed:1", 1)[scenario.RTTMean], 70.1, 0.01)
}

// TestCosts checks that a distribution of cost has its documented mean.
func TestCosts(t *testing.T) {
	for size, mean := range map[string]float64{
		"{ lognormal: 1 }": 1, "{ uniform: [1, 100] }": 50.5, "{ constant: 5000 }": 5000,
	} {
		s := parse(t, one("300s", fmt.Sprintf("{ rate: %g }", 100*mean), "deterministic",
			"{ rtt: 0s }", "saturated")+"size: "+size)
		f := run(t, s, "fixed:2", 1)
		near(t, "mean cost of "+size, 100*mean*f[scenario.Goodput]/f[scenario.RateMean], mean, 0.02)
		near(t, "batches a second of "+size, f[scenario.RateMean], 100, 0.02)
	}
}
