package flowsim

import (
	"context"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// Experiment tests one claim of the article on which flow control is based (docs/origins/storm.md).
// Its result is a table. The rows are variants, for example of the window size or of the batch
// size. The columns are measured figures.
type Experiment struct {
	Name, Question string
	Columns        []Column
	Rows           []Row
	Note           string // related measurements, as text

	// measure sets the values of the rows. Nil means simulate. first is the first seed, and
	// seeds is the number of runs of each row.
	measure func(ctx context.Context, x *Experiment, first uint64, seeds int) error
}

// Column is a measured figure, such as the goodput. Simulated values are medians over the seeds.
type Column struct {
	Title    string
	scenario int // index into the rows' scenarios
	figure   scenario.Figure
	scale    float64 // factor of the values; 0 means 1
}

// Row is one variant of an experiment.
type Row struct {
	Name      string
	Values    []float64 // values of the columns, in order
	spec      string
	scenarios []string // as text, by Column.scenario; not used by oneLimit and restarted
}

// article is a part of a scenario, with the workers of the article on which flow control is based:
// twelve unequal workers, which together can deliver 655 batches per second.
const article = `warmup: 5s
workers:
  - { count: 4, rate: 100 }
  - { count: 4, rate: 50 }
  - { count: 2, rate: 20 }
  - { count: 1, rate: 10 }
  - { count: 1, rate: 5 }
service: exponential
network: { rtt: 10ms }
`

const (
	finiteJob = "duration: 3600s\n" +
		"workers: [ { count: 4, rate: 100 }, { count: 4, rate: 50 }, { count: 2, rate: 20 }, { " +
		"rate: 10 }, { rate: 5 } ]\n" +
		"network: { rtt: 10ms }\nload: { batches: 20000 }\n"
	openLoad  = "duration: 60s\nload: { poisson: 0.6 }\n" + article
	endless   = "duration: 60s\nload: saturated\n" + article
	parallel  = endless + "slots: 8\n"
	coldStart = "duration: 10s\nworkers: [ { rate: 2000, slots: 200 } ]\nservice: " +
		"deterministic\nload: { batches: 500 }\n"
	equalHang = "duration: 90s\nwarmup: 5s\nworkers: [ { count: 12, rate: 50 } ]\nnetwork: { " +
		"rtt: 10ms }\nload: { poisson: 0.6 }\n" +
		"events: [ { at: 30s, for: 30s, workers: [0], hang: true } ]\n"
	noTimeout = "timeout: 24h\n"
	unbounded = "fixed:100000"
)

var withoutTimeouts = []string{finiteJob + noTimeout, openLoad + noTimeout}

// Ablate runs all experiments and returns them with their results. first is the first seed, and
// seeds is the number of runs of each variant.
func Ablate(ctx context.Context, first uint64, seeds int) ([]Experiment, error) {
	all := Experiments()
	for i := range all {
		x := &all[i]
		measure := x.measure
		if measure == nil {
			measure = simulate
		}
		if err := measure(ctx, x, first, seeds); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return all, nil
}

// Experiments returns the experiments of Ablate in order, without their results.
func Experiments() []Experiment {
	return []Experiment{{
		Name: "dispatch",
		Question: "The worker is chosen by hash, round robin or least completion, in a finite " +
			"job and at 60 % load",
		Columns: []Column{
			{Title: "seconds for 20,000 batches", scenario: 0, figure: scenario.Finish},
			{Title: "60 %: p50 ms", scenario: 1, figure: scenario.LatencyP50},
			{Title: "p99 ms", scenario: 1, figure: scenario.LatencyP99},
			{Title: "in flight", scenario: 1, figure: scenario.InFlightMean},
		},
		Rows: []Row{
			{Name: "hash, no windows", spec: unbounded + "+hash", scenarios: withoutTimeouts},
			{Name: "round robin, no windows", spec: unbounded + "+round_robin", scenarios: withoutTimeouts},
			{Name: "round robin, windows", spec: "linear+round_robin", scenarios: []string{finiteJob, openLoad}},
			{Name: "least completion, windows", spec: "linear", scenarios: []string{finiteJob, openLoad}},
		},
	}, {
		Name:     "window_size",
		Question: "Fixed windows with an endless backlog: a larger window is not always better",
		Columns: []Column{
			{Title: "goodput %", figure: scenario.Goodput, scale: 100},
			{Title: "round trip ms", figure: scenario.RTTMean},
			{Title: "p99 ms", figure: scenario.LatencyP99},
			{Title: "in flight", figure: scenario.InFlightMean},
		},
		Rows: windowSizes(),
	}, {
		Name: "step", Question: "The window changes once per round trip or with each ack: " +
			"endless backlog, workers with 1 or 8 slots",
		Columns: []Column{
			{Title: "goodput %", scenario: 0, figure: scenario.Goodput, scale: 100},
			{Title: "round trip ms", scenario: 0, figure: scenario.RTTMean},
			{Title: "8 slots: goodput %", scenario: 1, figure: scenario.Goodput, scale: 100},
			{Title: "round trip ms", scenario: 1, figure: scenario.RTTMean},
		},
		Rows: []Row{
			{Name: "per round", spec: "linear", scenarios: []string{endless, parallel}},
			{Name: "per ack", spec: "linear:per_ack", scenarios: []string{endless, parallel}},
			{Name: "per round, 50 ms threshold", spec: "linear:50ms", scenarios: []string{endless, parallel}},
			{Name: "per ack, 50 ms threshold", spec: "linear:50ms:per_ack", scenarios: []string{endless, parallel}},
		},
	}, {
		Name: "slow_start",
		Question: "Windows with slow start or linear growth, for one idle worker with 200 " +
			"slots and for twelve workers",
		Columns: []Column{
			{Title: "seconds for 500 batches", scenario: 0, figure: scenario.Finish},
			{Title: "twelve: overshoot", scenario: 1, figure: scenario.Overshoot},
			{Title: "goodput %", scenario: 1, figure: scenario.Goodput, scale: 100},
		},
		Rows: slowStarts(),
	}, {
		Name: "after_timeout",
		Question: "A timed-out batch goes to the same or another worker. One of 12 equal " +
			"workers hangs for 30 s at 60 % load",
		Columns: []Column{
			{Title: "p99 ms", figure: scenario.LatencyP99},
			{Title: "p99.9 ms", figure: scenario.LatencyP999},
			{Title: "age of the oldest ms", figure: scenario.WatermarkLag},
			{Title: "attempts per batch", figure: scenario.AttemptsPerBatch},
		},
		Rows: []Row{
			{Name: "the same worker", spec: "linear+hash", scenarios: []string{equalHang}},
			{Name: "the next one", spec: "linear+hash_once", scenarios: []string{equalHang}},
		},
	}, batchSizes(), oneLimit(), restarted()}
}

func batchSizes() Experiment {
	return Experiment{
		Name: "batch_records",
		Question: "Batches have 1 to 1,000 records. The workers take 32,750 records per " +
			"second, over a network of 10 ms",
		Columns: []Column{
			{Title: "goodput %, window 4", scenario: 0, figure: scenario.Goodput, scale: 100},
			{Title: "goodput %, linear", scenario: 1, figure: scenario.Goodput, scale: 100},
			{Title: "acks per second", scenario: 1, figure: scenario.RateMean},
			{Title: "round trip ms", scenario: 1, figure: scenario.RTTMean},
		},
		Rows: batchRecords(),
	}
}

func windowSizes() (rows []Row) {
	for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64} {
		rows = append(rows,
			Row{Name: fmt.Sprintf("fixed %d", n), spec: fmt.Sprintf("fixed:%d", n), scenarios: []string{endless}})
	}
	return append(rows, Row{Name: "linear", spec: "linear", scenarios: []string{endless}})
}

// slowStarts returns a row for each algorithm in the comparison of how windows grow at the start:
// linear, reno with TCP's slow start, and queue, which doubles its window at the start.
func slowStarts() (rows []Row) {
	for _, name := range AlgorithmNames() {
		if name == "linear" || name == "reno" || name == "queue" {
			rows = append(rows, Row{Name: name, spec: name, scenarios: []string{coldStart, endless}})
		}
	}
	return rows
}

func batchRecords() (rows []Row) {
	form := "duration: 12s\nload: saturated\nsize: { constant: %d }\n" +
		strings.NewReplacer("100 }", "5000 }", "50 }", "2500 }", "20 }", "1000 }", "rate: 10 }",
			"rate: 500 }", "rate: 5 }",
			"rate: 250 }").Replace(article)
	for _, n := range []int{1, 3, 10, 30, 100, 300, 1000} {
		text := fmt.Sprintf(form, n)
		rows = append(rows,
			Row{Name: fmt.Sprintf("%d records", n), spec: "fixed:4", scenarios: []string{text, "linear\n" + text}})
	}
	return rows
}

// simulate runs the scenarios of the rows. A scenario may begin with a line that names an
// algorithm. simulate then uses this algorithm instead of that of the row.
func simulate(ctx context.Context, x *Experiment, first uint64, seeds int) error {
	var plans []Plan
	for _, r := range x.Rows {
		for _, text := range r.scenarios {
			name := r.spec
			if head, rest, found := strings.Cut(text, "\n"); found && !strings.Contains(head, ":") {
				name, text = head, rest
			}
			s, err := scenario.Parse(x.Name, []byte(text))
			if err != nil {
				return err
			}
			spec, err := Find(name, "")
			if err != nil {
				return err
			}
			plans = append(plans, Plan{Scenario: s, Specs: []*Spec{spec}})
		}
	}
	var got []scenario.Figures
	if err := RunAll(ctx, plans, first, seeds, func(s *Summary) error {
		got = append(got, s.Median)
		return nil
	}); err != nil {
		return err
	}
	for i := range x.Rows {
		r := &x.Rows[i]
		for _, c := range x.Columns {
			v := got[c.scenario][c.figure]
			if c.scale != 0 {
				v *= c.scale
			}
			r.Values = append(r.Values, v)
		}
		got = got[len(r.scenarios):]
	}
	return nil
}
