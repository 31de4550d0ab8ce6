package flowsim

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/internal/kernel"
)

// stormRow is a measurement of the real Apache Storm 2.8.3, with one process, one acker (the
// component that tracks acknowledgments), and 12 bolts (workers). The bolts have the rates of the
// workers in the constant article, and exponential service times. There is no network delay. A run
// takes 60 s, of which the first 20 s are omitted.
type stormRow struct {
	name                          string
	limit                         int     // max.spout.pending; 0 means one window for each bolt
	goodput, inFlight, roundTrips float64 // % of 655/s; tuples; ms
}

var stormMeasured = []stormRow{
	{"one limit of 12 for all", 12, 9.3, 11, 181},
	{"one limit of 60 for all", 60, 9.6, 59, 700},
	{"one limit of 240 for all", 240, 13, 239, 1400},
	{"one limit of 1,000 for all", 1000, 19, 998, 3100},
	{"a window for each", 0, 99.5, 34, 54},
}

// stormRun is the duration of a measurement of Storm, and stormWarmup its omitted first part.
const stormRun, stormWarmup = 60 * time.Second, 20 * time.Second

// oneLimit returns the experiment that compares one limit for all workers with one window for each
// worker.
func oneLimit() Experiment {
	x := Experiment{
		Name: "one_limit", measure: runOneLimit,
		Question: "All workers share one limit, as in Storm's own flow control, or each has a " +
			"window: endless backlog",
		Columns: []Column{
			{Title: "goodput %"}, {Title: "Storm measured: goodput %"}, {Title: "Storm: in flight"},
			{Title: "Storm: round trip ms"},
		},
		Note: "Storm 2.8.3 was measured for 60 s without the first 20 s, with max.spout.pending " +
			"and shuffle grouping. For \"a window for each\", the article's flow control was " +
			"rebuilt on Storm, with a threshold of 50 ms. One limit is simulated as in Storm: " +
			"after each ack the spout sends the next tuple, to the bolts in turn. So the limit " +
			"fills up with batches of the slowest worker. In the long run all twelve deliver at " +
			"its rate: 12 x 5/s = 9.2 % of the capacity.",
	}
	for _, m := range stormMeasured {
		x.Rows = append(x.Rows, Row{Name: m.name})
	}
	return x
}

// runOneLimit compares two bounds on in-flight batches: one limit that all workers share, as in
// Storm, and one window for each worker.
func runOneLimit(ctx context.Context, x *Experiment, first uint64, seeds int) error {
	s, err := scenario.Parse(x.Name, []byte(endless))
	if err != nil {
		return err
	}
	linear, err := Find("linear", "")
	if err != nil {
		return err
	}
	own := 0.0
	err = RunAll(ctx, []Plan{{Scenario: s, Specs: []*Spec{linear}}}, first, seeds,
		func(sum *Summary) error {
			own = 100 * sum.Median[scenario.Goodput]
			return nil
		})
	if err != nil {
		return err
	}
	for i, m := range stormMeasured {
		goodput := own
		if m.limit > 0 {
			var runs []float64
			for k := range seeds {
				runs = append(runs, 100*spout(s, m.limit, first+uint64(k)))
			}
			slices.Sort(runs)
			goodput = (runs[(seeds-1)/2] + runs[seeds/2]) / 2
		}
		x.Rows[i].Values = []float64{goodput, m.goodput, m.inFlight, m.roundTrips}
	}
	return nil
}

// spout simulates a sender with a fixed number of batches in flight (limit) over all workers of s,
// and returns its goodput as a share of the total rate of the workers. The sender sends to the
// workers in turn, regardless of their queues. The model is a closed network of queues without
// network delay.
func spout(s *scenario.Scenario, limit int, seed uint64) float64 {
	rnd := kernel.Rand(seed, serviceStream)
	var served kernel.Kernel[int] // key: worker
	queued := make([]int, len(s.Workers))
	turn, done, nominal := 0, 0, 0.0
	for _, w := range s.Workers {
		nominal += w.Rate
	}
	serve := func(i int) {
		served.After(time.Duration(rnd.ExpFloat64()/s.Workers[i].Rate*float64(time.Second)), i)
	}
	send := func() {
		if queued[turn]++; queued[turn] == 1 {
			serve(turn)
		}
		turn = (turn + 1) % len(queued)
	}
	for range limit {
		send()
	}
	for {
		i, ok := served.Next(stormRun - 1)
		if !ok {
			return float64(done) / (nominal * (stormRun - stormWarmup).Seconds())
		}
		if served.Now() >= stormWarmup {
			done++
		}
		if queued[i]--; queued[i] > 0 {
			serve(i)
		}
		send()
	}
}
