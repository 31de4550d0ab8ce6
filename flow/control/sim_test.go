package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/control/controltest"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// unequal is the base set of the scenarios: twelve workers, 655 items a second together.
func unequal() []controltest.Worker {
	var w []controltest.Worker
	for _, g := range []struct {
		n    int
		rate float64
	}{{4, 100}, {4, 50}, {2, 20}, {1, 10}, {1, 5}} {
		for range g.n {
			w = append(w, controltest.Worker{Rate: g.rate})
		}
	}
	return w
}

const capacity = 655

func run(t *testing.T, s controltest.Scenario) controltest.Result {
	t.Helper()
	r, err := controltest.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLinearSaturated(t *testing.T) {
	for _, d := range []dispatch.Policy{dispatch.LeastCompletion{}, dispatch.RoundRobin{}} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", d.Name(), seed), func(t *testing.T) {
				r := run(t, controltest.Scenario{
					Workers: unequal(), RTT: 10 * time.Millisecond, Duration: 120 * time.Second, Warmup: 40 * time.Second, Seed: seed,
					Config: control.Config{Seed: seed, Window: window.Linear{}, Dispatch: d},
				})
				t.Logf("goodput %.3f, in flight %.1f, mean round trip %v, duplicates %d", r.Goodput/capacity, r.InFlight, controltest.Mean(r.RTTs), r.Duplicates)
				if r.Goodput < 0.97*capacity {
					t.Errorf("goodput is %.3f of the optimum, want 0.97", r.Goodput/capacity)
				}
			})
		}
	}
}

// faulty gives worker i a fault.
func faulty(w []controltest.Worker, i int, f controltest.Fault) []controltest.Worker {
	w[i].Faults = append(w[i].Faults, f)
	return w
}

func TestFaultyWorkerAt60Percent(t *testing.T) {
	const from, to = 40 * time.Second, 100 * time.Second
	for _, c := range []struct {
		name  string
		fault controltest.Fault
		p99   time.Duration
	}{
		{"hang", controltest.Fault{Kind: controltest.Hang, From: from, To: to}, 250 * time.Millisecond},
		{"black hole", controltest.Fault{Kind: controltest.Fail, From: from, To: to, After: 6 * time.Millisecond}, 250 * time.Millisecond},
		{"misconfigured", controltest.Fault{Kind: controltest.Deny, From: from, To: to}, 250 * time.Millisecond},
	} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				r := run(t, controltest.Scenario{
					Workers: faulty(unequal(), 0, c.fault), RTT: 10 * time.Millisecond, Load: 0.6 * capacity,
					Duration: 120 * time.Second, Warmup: 20 * time.Second, Seed: seed,
					Config: control.Config{Seed: seed},
				})
				share := float64(r.FaultyHits[0]) / float64(r.Hits)
				p99 := controltest.Quantile(r.Latencies, 0.99)
				t.Logf("goodput %.3f, share of attempts %.5f, p99 %v, duplicates %d, redeliveries %d of %d",
					r.Goodput/(0.6*capacity), share, p99, r.Duplicates, r.Status.Redeliveries, r.Status.Attempts)
				if share > 0.01 {
					t.Errorf("%.4f of the attempts went into the faulty worker, want at most 0.01", share)
				}
				if p99 > c.p99 {
					t.Errorf("p99 latency is %v, want at most %v", p99, c.p99)
				}
			})
		}
	}
}

func TestNoFaultAt60Percent(t *testing.T) {
	for _, d := range []dispatch.Policy{dispatch.LeastCompletion{}, dispatch.RoundRobin{}} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", d.Name(), seed), func(t *testing.T) {
				r := run(t, controltest.Scenario{
					Workers: unequal(), RTT: 10 * time.Millisecond, Load: 0.6 * capacity,
					Duration: 120 * time.Second, Warmup: 20 * time.Second, Seed: seed,
					Config: control.Config{Seed: seed, Dispatch: d},
				})
				t.Logf("p50 %v p99 %v p999 %v %v dup %d redel %d", controltest.Quantile(r.Latencies, .5), controltest.Quantile(r.Latencies, 0.99), controltest.Quantile(r.Latencies, .999), r.Attempts, r.Duplicates, r.Status.Redeliveries)
				for _, l := range r.Status.Lanes {
					t.Logf("%d %v w %v %s", l.Lane, l.State, l.Window, l.Reason)
				}
			})
		}
	}
}
