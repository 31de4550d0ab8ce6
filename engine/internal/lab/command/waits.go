package command

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/engine/internal/table"
)

// maxSteps is the maximum number of waits of a policy that are printed.
const maxSteps = 10_000

type backoffFlags struct {
	steps int
	seed  uint64
	output
}

// backoffResult is the line of output of `backoff --json`. See docs/which-backoff.md. The names of
// its fields are stable.
type backoffResult struct {
	Spec  string        `json:"spec"` // as given on the command line
	Steps []backoffStep `json:"steps"`
}

// backoffStep has the wait after n+1 failures, and the sum of this wait and all earlier ones.
type backoffStep struct {
	N            int           `json:"n"`
	Lowest       time.Duration `json:"lowest_ns"`
	Mean         time.Duration `json:"mean_ns"`
	Highest      time.Duration `json:"highest_ns"`
	Drawn        time.Duration `json:"drawn_ns"`
	TotalLowest  time.Duration `json:"total_lowest_ns"`
	TotalMean    time.Duration `json:"total_mean_ns"`
	TotalHighest time.Duration `json:"total_highest_ns"`
	TotalDrawn   time.Duration `json:"total_drawn_ns"`
}

func newBackoffCommand() *cobra.Command {
	var f backoffFlags
	cmd := &cobra.Command{
		Use:   "backoff SPEC",
		Short: "Print and draw how long a policy waits",
		Long: `Backoff prints one line for each step of a policy: the shortest, the mean and the
longest wait, one random sample, and the sums of these so far. The policy is
written as in the config's retry.backoff. The output ends where the policy gives up; a
config's retry repeats the last wait after that.

    exponential base=250ms factor=2 max=30s jitter=full
    recommended latency=40ms max=2s
    fixed delay=1s
    random max=1s
    linear base=1s increment=1s max=30s
    polynomial base=40ms degree=2 max=30s
    fibonacci unit=10ms max=1m
    table delays=15s,15s,30s,3m
    pattern points=0:1s,5:5s
    decorrelated base=1s max=30s
    decorrelated_v2 base=1s max=30s
    slotted slot=51.2us max_exponent=10 attempts=16

attempts=5 limits any of them to five attempts. jitter is none, full, equal,
proportional or additive, the last two with width=0.2 for 20 %. Policies combine:

    first_now(fixed delay=1s)
    then(fixed delay=1s; 3; fixed delay=1m)
    max(fixed delay=1s; random max=3s)
    sum(fixed delay=1s; random max=500ms)
    limit(sum(fixed delay=1s; random max=500ms); 5)

Policies of other libraries, with all of their keys:

    ` + strings.Join(compat.Specs(), "\n    ") + `

--plot draws the waits as SVG or PNG, depending on the file's extension.`,
		Example: `  penstock backoff exponential base=250ms max=30s jitter=full
  penstock backoff "slotted slot=51.2us attempts=16" --json
  penstock backoff recommended --n 10 --plot recommended.svg`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("backoff needs a policy, such as %q",
					"exponential base=250ms max=30s jitter=full")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.OutOrStdout(), strings.Join(args, " "))
		},
	}
	cmd.Flags().IntVar(&f.steps, "n", 20, "number of waits")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the random sample")
	f.addFlags(cmd.Flags(), "print one line of JSON")
	return cmd
}

func (f backoffFlags) run(out io.Writer, spec string) error {
	if f.steps < 1 || f.steps > maxSteps {
		return usagef("backoff --n: %d is not 1 to %d", f.steps, maxSteps)
	}
	p, err := compat.Parse(spec)
	if err != nil {
		return usagef("%v", err)
	}
	r := backoffResult{Spec: spec, Steps: steps(p, f.steps, rand.NewPCG(f.seed, 0))}
	if err := f.line(out, r); err != nil {
		return err
	}
	return f.finish(out, r.text(f.steps), func() plot.Figure { return r.figure(f.seed) })
}

// steps returns the first waits of p, at most n.
func steps(p backoff.Policy, n int, src rand.Source) []backoffStep {
	list := []backoffStep{}
	var s backoffStep
	for step, drawn := range backoff.Delays(p, src) {
		if step >= n {
			break
		}
		s.N, s.Drawn = step, drawn
		s.Lowest, s.Mean, s.Highest = backoff.Bounds(p, step)
		s.TotalLowest, s.TotalMean = saturated(s.TotalLowest, s.Lowest),
			saturated(s.TotalMean, s.Mean)
		s.TotalHighest, s.TotalDrawn = saturated(s.TotalHighest, s.Highest),
			saturated(s.TotalDrawn, s.Drawn)
		list = append(list, s)
	}
	return list
}

func saturated(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (r backoffResult) text(asked int) string {
	rows := [][]string{{"step", "lowest", "mean", "highest", "drawn", "sum: lowest", "mean",
		"highest", "drawn"}}
	for _, s := range r.Steps {
		rows = append(rows, []string{
			strconv.Itoa(s.N), short(s.Lowest), short(s.Mean), short(s.Highest), short(s.Drawn),
			short(s.TotalLowest), short(s.TotalMean), short(s.TotalHighest), short(s.TotalDrawn),
		})
	}
	text := table.Text(rows, 0)
	if len(r.Steps) < asked {
		text += fmt.Sprintf("gives up after %d waits, that is %d attempts\n", len(r.Steps),
			len(r.Steps)+1)
	}
	return text
}

// short formats a duration, rounded to five significant digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for limit := d / 100000; unit <= limit; {
		unit *= 10
	}
	return d.Round(unit).String()
}

// figure draws the wait of each step, and the sum of all waits up to it.
func (r backoffResult) figure(seed uint64) plot.Figure {
	var n, low, mean, high, drawn, sumLow, sumMean, sumHigh, sumDrawn []float64
	for _, s := range r.Steps {
		n = append(n, float64(s.N))
		low, mean, high, drawn = append(low, s.Lowest.Seconds()), append(mean, s.Mean.Seconds()),
			append(high, s.Highest.Seconds()), append(drawn, s.Drawn.Seconds())
		sumLow, sumMean, sumHigh, sumDrawn = append(sumLow, s.TotalLowest.Seconds()),
			append(sumMean, s.TotalMean.Seconds()),
			append(sumHigh, s.TotalHighest.Seconds()), append(sumDrawn, s.TotalDrawn.Seconds())
	}
	panel := func(title, label string, low, mean, high, drawn []float64) plot.Panel {
		return plot.Panel{
			Title: title,
			X:     plot.Axis{Label: "step (failures before)", Whole: true},
			Y:     plot.Axis{Label: label, Format: secondsText, Time: true},
			Series: []plot.Series{
				{Name: "lowest to highest", Shape: plot.Band, X: n, Y: high, Low: low},
				{Name: "mean", Shape: plot.Line, X: n, Y: mean},
				{Name: "drawn, seed " + strconv.FormatUint(seed, 10), Shape: plot.Dots, Color: 1,
					X: n, Y: drawn},
			},
		}
	}
	return plot.Figure{
		Title: r.Spec, Subtitle: "how long it waits, as penstock backoff prints it",
		Panels: []plot.Panel{
			panel("Wait at each step", "wait", low, mean, high, drawn),
			panel("Waited in all", "sum of the waits", sumLow, sumMean, sumHigh, sumDrawn),
		},
	}
}

// secondsText formats seconds for the axis of a plot, in a suitable unit.
func secondsText(s float64) string {
	number := func(x float64, unit string) string {
		return strconv.FormatFloat(x, 'g', 3, 64) + " " + unit
	}
	switch abs := math.Abs(s); {
	case abs == 0:
		return "0"
	case abs < 1e-6:
		return number(s*1e9, "ns")
	case abs < 1e-3:
		return number(s*1e6, "us")
	case abs < 1:
		return number(s*1e3, "ms")
	case abs < 120:
		return number(s, "s")
	case abs < 7200:
		return number(s/60, "min")
	case abs < 2*86400:
		return number(s/3600, "h")
	}
	return number(s/86400, "d")
}
