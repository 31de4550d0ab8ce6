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
