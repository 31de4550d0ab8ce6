package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/engine/internal/table"
)

// tableAlgorithms are the default columns of --table: first the algorithms of this program, then
// those of other programs. The last one is queue with the dispatch policy of other programs.
var tableAlgorithms = []string{
	"linear", "linear+round_robin", "aimd", "queue", "credit", "rate", "fixed:4",
	"vector_arc", "netflix_vegas", "netflix_gradient2", "reno", "queue+peak_ewma",
}

// tableSeeds is the number of runs with --table if --seeds is not set.
const tableSeeds = 5

// tableKind is a kind of scenario, with the figures that a cell of the table shows.
type tableKind struct {
	title, cell string
	is          func(s *scenario.Scenario) bool
	figures     []tableFigure
}

type tableFigure struct {
	figure scenario.Figure
	scale  float64
}

var (
	goodputPercent = tableFigure{scenario.Goodput, 100}
	// tableExtras are additional figures. A row shows the first one that applies to its scenario,
	// for example the share of attempts to failing workers if workers fail. A scenario with a link
	// (one receiver with a delay that depends on its load) shows none.
	tableExtras = []struct {
		what string
		when func(s *scenario.Scenario) bool
		tableFigure
	}{
		{"% of attempts to failing workers", func(s *scenario.Scenario) bool {
			return has(s, scenario.Fail) || has(s, scenario.Hang)
		},
			tableFigure{scenario.BadShare, 100}},
		{"% of attempts answered 429", func(s *scenario.Scenario) bool {
			return has(s, scenario.Throttle)
		},
			tableFigure{scenario.RejectedShare, 100}},
		{"Jain's index of the senders", func(s *scenario.Scenario) bool {
			return s.Senders > 1
		}, tableFigure{scenario.Jain, 1}},
		{"s to recover", func(s *scenario.Scenario) bool {
			return has(s, scenario.Rate)
		}, tableFigure{scenario.Recover, 1}},
	}
	tableKinds = []tableKind{
		{"One receiver whose delay depends on its load (Vector's fixtures)",
			"mean in flight · batches a second · mean round trip ms",
			func(s *scenario.Scenario) bool { return s.Link != nil },
			[]tableFigure{{scenario.InFlightMean, 1}, {scenario.RateMean, 1},
				{scenario.RTTMean, 1}}},
		{"A finite job", "seconds that it takes · mean round trip ms",
			func(s *scenario.Scenario) bool { return s.Load.Batches > 0 },
			[]tableFigure{{scenario.Finish, 1}, {scenario.RTTMean, 1}}},
		{"Open load", "goodput % · p99 ms from the planned arrival to the ack",
			func(s *scenario.Scenario) bool { return s.Load.Poisson > 0 },
			[]tableFigure{goodputPercent, {scenario.LatencyP99, 1}}},
		{"Endless backlog", "goodput % · mean round trip ms",
			func(*scenario.Scenario) bool { return true },
			[]tableFigure{goodputPercent, {scenario.RTTMean, 1}}},
	}
)

func has(s *scenario.Scenario, kind scenario.EventKind) bool {
	return slices.ContainsFunc(s.Events, func(e scenario.Event) bool { return e.Kind == kind })
}

// tableResult has, for each scenario and algorithm, the median of each figure over the seeds.
type tableResult struct {
	scenarios []*scenario.Scenario
	medians   map[*scenario.Scenario]map[string]scenario.Figures
	seeds     int
	first     uint64 // number of the first seed
	held      int
	missed    []string
}

func (f *flowFlags) runTable(cmd *cobra.Command, files []string) error {
	if !cmd.Flags().Changed("seeds") {
		f.seeds = tableSeeds
	}
	if len(f.algorithms) == 0 {
		f.algorithms = tableAlgorithms
	}
	r := tableResult{medians: map[*scenario.Scenario]map[string]scenario.Figures{}, seeds: f.seeds,
		first: f.seed}
	var plans []flowsim.Plan
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			return usagef("sim flow: %v", err)
		}
		algorithms := slices.Clone(f.algorithms)
		// The scenario file may set bounds for algorithms that are not in the table. These
		// algorithms run as well, so that their bounds are checked.
		for _, e := range s.Expect {
			if !slices.Contains(algorithms, e.Algorithm) {
				algorithms = append(algorithms, e.Algorithm)
			}
		}
		p, err := flowsim.NewPlan(s, algorithms, "")
		if err != nil {
			return usagef("sim flow: %v", err)
		}
		r.scenarios = append(r.scenarios, s)
		r.medians[s] = map[string]scenario.Figures{}
		plans = append(plans, p)
	}
	if err := flowsim.RunAll(cmd.Context(), plans, f.seed, f.seeds,
		func(s *flowsim.Summary) error { r.add(s); return nil }); err != nil {
		return fmt.Errorf("sim flow: --table: %w", err)
	}
	var text bytes.Buffer
	r.write(&text, f.algorithms)
	if f.into != "" {
		return writeBetween(f.into, "tables", text.Bytes())
	}
	_, err := cmd.OutOrStdout().Write(text.Bytes())
	return err
}

// seedsLine returns a sentence for the page: the number of runs for each figure of the page, and
// the command that reproduces the figures.
func seedsLine(seeds int, first uint64, what string) string {
	const text = "Medians of %d seeds, from seed %d on: " +
		"`penstock sim flow --seeds %d --seed %d %s`.\n"
	return fmt.Sprintf(text, seeds, first, seeds, first, what)
}

func (r *tableResult) add(s *flowsim.Summary) {
	r.medians[s.Scenario][s.Spec.Name] = s.Median
	for _, v := range s.Verdicts {
		if v.OK {
			r.held++
			continue
		}
		of := "median"
		if v.Worst {
			of = "worst seed"
		}
		r.missed = append(r.missed, fmt.Sprintf("%s, `%s`: %s of `%s` is %s, must be %s",
			s.Scenario.Name, s.Spec.Name, of, v.Field, table.Number(v.Got), v.Text))
	}
}

func (r *tableResult) write(w io.Writer, algorithms []string) {
	fmt.Fprint(w, seedsLine(r.seeds, r.first, "--table docs/scenarios/*.yaml"))
	for k := len(tableKinds) - 1; k >= 0; k-- {
		kind := &tableKinds[k]
		var rows []*scenario.Scenario
		for _, s := range r.scenarios {
			if kindOfScenario(s) == kind {
				rows = append(rows, s)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n### %s\n\nEach cell shows: %s. "+
			"If the row names another figure, it follows after a second dot.\n\n| scenario |",
			kind.title, kind.cell)
		for _, a := range algorithms {
			fmt.Fprintf(w, " `%s` |", a)
		}
		fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(algorithms)))
		for _, s := range rows {
			r.row(w, kind, s, algorithms)
		}
	}
	const bounds = "\n### Bounds\n\nThe files hold %d bounds, for the algorithms that they name; " +
		"with these seeds %d hold.\n"
	fmt.Fprintf(w, bounds, r.held+len(r.missed), r.held)
	for i, m := range r.missed {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "- %s\n", m)
	}
}

func kindOfScenario(s *scenario.Scenario) *tableKind {
	return &tableKinds[slices.IndexFunc(tableKinds, func(k tableKind) bool { return k.is(s) })]
}

func (r *tableResult) row(w io.Writer, kind *tableKind, s *scenario.Scenario, algorithms []string) {
	cells := slices.Clone(kind.figures)
	name := s.Name
	for _, x := range tableExtras {
		if s.Link == nil && x.when(s) {
			cells = append(cells, x.tableFigure)
			name += "<br>" + x.what
			break
		}
	}
	fmt.Fprintf(w, "| %s |", name)
	for _, a := range algorithms {
		median := r.medians[s][a]
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(w, " ·")
			}
			fmt.Fprintf(w, " %s", brief(median[c.figure]*c.scale))
		}
		fmt.Fprint(w, " |")
	}
	fmt.Fprintln(w)
}

// brief formats a figure with about three digits.
func brief(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// writeBetween replaces the generated part of a page, which is between two markers, by text.
func writeBetween(path, what string, text []byte) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("sim flow: --into: %w", err)
	}
	begin, end := "<!-- "+what+": make docs-flow -->\n", "<!-- end of "+what+" -->"
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return usagef("sim flow: --into: %s has no line %q with %q below it", path,
			strings.TrimSpace(begin), end)
	}
	page = slices.Concat(before, []byte(begin+"\n"), text, []byte("\n"+end), after)
	if err := os.WriteFile(path, page, 0o644); err != nil {
		return fmt.Errorf("sim flow: --into: %w", err)
	}
	return nil
}
