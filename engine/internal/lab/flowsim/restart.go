package flowsim

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/ledger"
)

// crashScenario is a minute at 60 % load that ends with a crash. One second before the crash, a
// worker hangs. Its batches hold back the watermark, the position up to which everything is
// delivered.
const crashScenario = "duration: 60s\nload: { poisson: 0.6 }\nevents: [ { at: 59s, for: " +
	"1s, workers: [0], hang: true } ]\n" + article

// checkpointEvery is the interval at which the checkpoint is made durable.
const checkpointEvery = time.Second

// restarted returns the experiment on repeated deliveries after a crash, without its results.
func restarted() Experiment {
	return Experiment{
		Name: "restart", measure: restarts,
		Question: "Batches that a crash repeats, after a minute at 60 % load in which one worker " +
			"hangs at the end",
		Columns: []Column{{Title: "batches"}, {Title: "% of those delivered"}},
		Rows: []Row{
			{Name: "no acks (hash dispatch)"}, {Name: "cumulative ack, saved each second"},
			{Name: "and ranges above it"},
		},
	}
}

// restarts counts the batches that are sent again after a crash although they were delivered. It
// compares three systems. The first has no acks and no checkpoint, so it sends all batches again.
// The second has a checkpoint with a cumulative ack (a watermark). The checkpoint of the third also
// has the delivered ranges above the watermark.
func restarts(_ context.Context, x *Experiment, first uint64, seeds int) error {
	var repeated [3][]scenario.Figures
	var shares [3][]scenario.Figures
	for k := range seeds {
		all, again, err := crash(first + uint64(k))
		if err != nil {
			return err
		}
		for i, n := range again {
			repeated[i] = append(repeated[i], scenario.Figures{float64(n)})
			shares[i] = append(shares[i], scenario.Figures{100 * float64(n) / float64(all)})
		}
	}
	for i := range x.Rows {
		x.Rows[i].Values = []float64{scenario.Median(repeated[i])[0], scenario.Median(shares[i])[0]}
	}
	return nil
}

// crash runs the scenario until the crash. It returns the number of settled batches, and how many
// of them each of the three systems (see restarts) would send again.
func crash(seed uint64) (settled int, again [3]int, err error) {
	s, err := scenario.Parse("restart", []byte(crashScenario))
	if err != nil {
		return 0, again, err
	}
	spec, err := Find("linear", "")
	if err != nil {
		return 0, again, err
	}
	at := func(seq uint64) ledger.Position { return ledger.Position{Num: int64(seq)} }
	l, err := ledger.New(at(0), nil)
	if err != nil {
		return 0, again, err
	}
	var done []uint64
	mark, above := l.Progress()
	saved := time.Duration(0)
	_, err = Run(s, spec, Options{Seed: seed, Trace: func(e *control.Event, do []control.Command) {
		if e.Now >= saved+checkpointEvery {
			saved = e.Now
			mark, above = l.Progress()
		}
		if e.Kind == control.Offer {
			if openErr := l.Open(ledger.Range{From: at(e.Seq - 1), To: at(e.Seq)}); openErr != nil && err == nil {
				err = openErr
			}
		}
		for _, c := range do {
			if c.Kind == control.Settle {
				l.Settle(ledger.Range{From: at(c.Seq - 1), To: at(c.Seq)})
				done = append(done, c.Seq)
			}
		}
	}})
	for _, seq := range done {
		again[0]++
		if int64(seq) <= mark.Num {
			continue
		}
		again[1]++
		within := false
		for _, r := range above {
			within = within || int64(seq) > r.From.Num && int64(seq) <= r.To.Num
		}
		if !within {
			again[2]++
		}
	}
	return len(done), again, err
}
