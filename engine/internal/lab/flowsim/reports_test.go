package flowsim_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// TestReportingWorkers checks workers that report their load. Their queues must stay short, even if
// the reports omit how long batches waited and were served: at most 4 batches are in flight for
// each worker.
func TestReportingWorkers(t *testing.T) {
	const unequal = ` # as in the test of worker processes
duration: 120s
warmup: 40s
workers:
  - { count: 4, rate: 20 }
  - { count: 4, rate: 10 }
  - { count: 2, rate: 4 }
  - { count: 1, rate: 2 }
  - { count: 1, rate: 1 }
service: exponential
network: { rtt: 1ms }
load: saturated
`
	for _, algorithm := range []string{"queue", "credit"} {
		for _, hides := range []bool{false, true} {
			spec := find(t, algorithm)
			spec.Reports, spec.HidesTimes = true, hides
			var runs []scenario.Figures
			for seed := range uint64(5) {
				f, err := flowsim.Run(parse(t, unequal), spec, flowsim.Options{Seed: seed + 1})
				if err != nil {
					t.Fatal(err)
				}
				runs = append(runs, f)
			}
			f := scenario.Median(runs)
			each := f[scenario.InFlightMean] / 12
			if f[scenario.Goodput] < 0.97 || each > 4 || f[scenario.LatencyP99] > 3000 {
				t.Errorf("%s, hides times %v: goodput %.3f, %.2f in flight for each worker, "+
					"p99 %.0f ms; want at least 0.97, and at most 4 and 3,000 ms", algorithm, hides,
					f[scenario.Goodput], each, f[scenario.LatencyP99])
			}
		}
	}
}
