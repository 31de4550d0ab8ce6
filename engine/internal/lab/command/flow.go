package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/engine/internal/table"
)

type flowFlags struct {
	algorithms []string
	dispatch   string
	seeds      int
	seed       uint64
	asJSON     bool
	plot       string
	trace      string
	replay     string
	ablate     bool
	table      bool
	into       string
}

// flowRun is the beginning of a line of the output of `sim flow --json`, one for each run. The
// measured figures follow as further members of the same JSON object. All names are stable.
type flowRun struct {
	Scenario  string `json:"scenario"`
	Algorithm string `json:"algorithm"`
	Dispatch  string `json:"dispatch"`
	Seed      uint64 `json:"seed"`
}

// flowSummary is the line that follows the runs of a scenario with an algorithm.
type flowSummary struct {
	Scenario  string           `json:"scenario"`
	Algorithm string           `json:"algorithm"`
	Dispatch  string           `json:"dispatch"`
	Seeds     int              `json:"seeds"`
	Median    scenario.Figures `json:"median"`
	Worst     scenario.Figures `json:"worst"`
	Expect    []flowBound      `json:"expect"`
	OK        bool             `json:"ok"`
}

type flowBound struct {
	Field string  `json:"field"`
	Bound string  `json:"bound"`
	Value float64 `json:"value"`
	OK    bool    `json:"ok"`
	Of    string  `json:"of"` // "median" or "worst": of the values of all seeds
}

// inLines joins names with commas, six on a line.
func inLines(names []string) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i > 0 && i%6 == 0:
			b.WriteString(",\n  ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	return b.String()
}

func newFlowCommand() *cobra.Command {
	var f flowFlags
	cmd := &cobra.Command{
		Use:   "flow FILE...",
		Short: "Run flow-control scenarios in virtual time",
		Long: `Sim flow runs scenarios with the flow control of a real run, and checks the results
against the bounds in the scenario files. The same seed gives the same figures, bit for
bit. The exit code is 1 if a bound is missed.

Without --algorithm, it runs the algorithms for which a file has bounds.

Algorithms: ` + inLines(flowsim.AlgorithmNames()) + `.
Dispatches: ` + inLines(flowsim.DispatchNames()) + ".",
		Example: `  penstock sim flow docs/scenarios/*.yaml
  penstock sim flow docs/scenarios/s01-saturated.yaml --algorithm linear --algorithm linear+round_robin --seeds 5
  penstock sim flow docs/scenarios/s05-step-change.yaml --algorithm fixed:8 --seeds 1 --json
  penstock sim flow --table docs/scenarios/*.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  f.run,
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.algorithms, "algorithm", nil,
		"one of the algorithms above; may be repeated")
	fl.StringVar(&f.dispatch, "dispatch", "",
		"one of the dispatches above, for algorithms without one in their name")
	fl.IntVar(&f.seeds, "seeds", 20, "runs of each scenario and algorithm")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the first run; further runs use the next ones")
	fl.BoolVar(&f.asJSON, "json", false, "one object a line")
	fl.StringVar(&f.plot, "plot", "", "folder for an SVG of each scenario and "+
		"algorithm, with the first seed")
	fl.StringVar(&f.trace, "trace", "", "file for the events and decisions of flow control, "+
		"with one scenario, algorithm and seed")
	fl.StringVar(&f.replay, "replay", "",
		"trace to replay instead of scenarios, from --trace or from flow: {trace: FILE}")
	fl.BoolVar(&f.ablate, "ablate", false,
		"run the experiments that disable one part of the algorithm, instead of scenarios")
	fl.BoolVar(&f.table, "table", false,
		"print markdown tables of all algorithms and peers over the scenarios; default --seeds 5")
	fl.StringVar(&f.into, "into", "", "with --table or --ablate: write the output "+
		"between the markers of this markdown page")
	return cmd
}

// maxSeeds is the maximum number of seeds of a command.
const maxSeeds = 100_000

func (f *flowFlags) run(cmd *cobra.Command, files []string) error {
	switch {
	case f.replay != "" && len(files) > 0:
		return usagef("sim flow: --replay takes only the trace; remove the scenario %q", files[0])
	case f.replay != "":
		return f.runReplay(cmd.OutOrStdout())
	case f.ablate && len(files) > 0:
		return usagef("sim flow: --ablate has its own scenarios; remove %q",
			files[0])
	case len(files) == 0 && !f.ablate:
		return usagef("sim flow needs scenario files: %s", cmd.UseLine())
	case f.seeds < 1 || f.seeds > maxSeeds:
		return usagef("sim flow: --seeds is %d; it must be 1 to %d", f.seeds, maxSeeds)
	case f.into != "" && !f.table && !f.ablate:
		return usagef("sim flow: --into needs --table or --ablate")
	case f.table && (f.ablate || f.asJSON || f.plot != "" || f.trace != ""):
		return usagef("sim flow: --table prints tables only; leave --ablate, --json, " +
			"--plot and --trace out")
	case f.table:
		return f.runTable(cmd, files)
	}
	if f.ablate {
		return f.runAblate(cmd)
	}
	var plans []flowsim.Plan
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			return usagef("sim flow: %v", err)
		}
		p, err := flowsim.NewPlan(s, f.algorithms, f.dispatch)
		if err != nil {
			return usagef("sim flow: %v", err)
		}
		plans = append(plans, p)
	}
	if f.plot != "" || f.trace != "" {
		if err := f.files(plans); err != nil {
			return err
		}
	}
	out := f.reporter(cmd.OutOrStdout())
	var missed []string
	err := flowsim.RunAll(cmd.Context(), plans, f.seed, f.seeds, func(s *flowsim.Summary) error {
		for _, v := range s.Verdicts {
			if !v.OK {
				missed = append(missed, fmt.Sprintf("%s: %s: %s is %s, and must be %s",
					s.Scenario.Name, s.Spec.Name, v.Field, table.Number(v.Got), v.Text))
			}
		}
		return out.summary(s)
	})
	if err != nil {
		return fmt.Errorf("sim flow: %w", err)
	}
	if err := out.end(); err != nil {
		return fmt.Errorf("sim flow: %w", err)
	}
	if len(missed) > 0 {
		return fmt.Errorf("sim flow: %d bounds missed:\n  %s", len(missed),
			strings.Join(missed, "\n  "))
	}
	return nil
}

func (f *flowFlags) reporter(w io.Writer) flowReporter {
	if f.asJSON {
		return &flowJSON{w}
	}
	t := &flowTable{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	return t
}

type flowReporter interface {
	summary(s *flowsim.Summary) error
	end() error
}

type flowJSON struct{ w io.Writer }

func (r *flowJSON) end() error { return nil }

func (r *flowJSON) summary(s *flowsim.Summary) error {
	for i := range s.Runs {
		head, err := json.Marshal(flowRun{s.Scenario.Name, s.Spec.Name, s.Spec.Dispatch,
			s.First + uint64(i)})
		if err != nil {
			return err
		}
		line := append(head[:len(head)-1], ',')
		line = s.Runs[i].AppendJSON(line)
		if _, err := r.w.Write(append(line, "}\n"...)); err != nil {
			return err
		}
	}
	sum := flowSummary{
		Scenario: s.Scenario.Name, Algorithm: s.Spec.Name, Dispatch: s.Spec.Dispatch,
		Seeds:  len(s.Runs),
		Median: s.Median, Worst: s.Worst, Expect: []flowBound{}, OK: s.OK,
	}
	for _, v := range s.Verdicts {
		of := "median"
		if v.Worst {
			of = "worst"
		}
		sum.Expect = append(sum.Expect, flowBound{v.Field.String(), v.Text, v.Got, v.OK, of})
	}
	line, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	_, err = r.w.Write(append(line, '\n'))
	return err
}

// flowTable prints a line for each scenario and algorithm. Below it is a line for each bound that
// the scenario sets for this algorithm: ok or MISSED, the measured figure and the bound.
type flowTable struct{ w *tabwriter.Writer }

func (r *flowTable) end() error { return r.w.Flush() }

func (r *flowTable) summary(s *flowsim.Summary) error {
	m := &s.Median
	fmt.Fprintf(r.w, "%s\t%s\tgoodput %s\tbloat %s\trtt %s ms\tp99 %s ms\tattempts %s\n",
		s.Scenario.Name, s.Spec.Title(), table.Number(m[scenario.Goodput]),
		table.Number(m[scenario.Bloat]),
		table.Number(m[scenario.RTTMean]), table.Number(m[scenario.LatencyP99]),
		table.Number(m[scenario.AttemptsPerBatch]))
	for _, v := range s.Verdicts {
		word := "ok"
		if !v.OK {
			word = "MISSED"
		}
		of := ""
		if v.Worst {
			of = "worst "
		}
		fmt.Fprintf(r.w, "\t\t%s\t%s%s\tis %s\tmust be %s\n", word, of, v.Field,
			table.Number(v.Got), v.Text)
	}
	return nil
}
