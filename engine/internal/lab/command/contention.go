package command

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/contention"
	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/engine/internal/table"
)

// Maximum values of the settings of a simulation.
const (
	maxClients = 10_000
	maxTrials  = 100_000
	maxOutage  = 24 * time.Hour
)

type contentionFlags struct {
	clients  []int
	policies []string
	trials   int
	seed     uint64
	outages  []time.Duration
	output
}

// contentionResult is a line of the output of `sim backoff --json`, without --outage. The names of
// its fields are stable. Its standard deviations describe single trials. To get the standard
// deviation of the mean, divide them by the square root of the number of trials.
type contentionResult struct {
	Policy   string  `json:"policy"` // as given on the command line
	Clients  int     `json:"clients"`
	TimeMs   float64 `json:"time_ms"`
	TimeSDMs float64 `json:"time_sd_ms"`
	Calls    float64 `json:"calls"`
	CallsSD  float64 `json:"calls_sd"`
	// GaveUp is the mean number of clients per trial that gave up before they had succeeded.
	GaveUp float64 `json:"gave_up,omitempty"`
}

// outageResult is a line of the output of `sim backoff --outage --json`. Its measurements are means
// over the trials.
type outageResult struct {
	Policy       string  `json:"policy"`
	OutageMs     float64 `json:"outage_ms"`
	Clients      int     `json:"clients"`
	Wasted       float64 `json:"wasted"`         // failed attempts per client
	DelayMs      float64 `json:"delay_ms"`       // recovery to a client's success, mean
	DelayWorstMs float64 `json:"delay_worst_ms"` // recovery to the success of the last client
	Burst        float64 `json:"burst"`          // most successes within any 50 ms
	GaveUp       float64 `json:"gave_up,omitempty"`
}

func newContentionCommand() *cobra.Command {
	var f contentionFlags
	cmd := &cobra.Command{
		Use:   "backoff [--clients N,N] [--policy NAME|SPEC]...",
		Short: "Compare policies under contention, or after an outage",
		Long: `Sim backoff lets clients contend for one row that each wants to update, as in the
AWS Architecture Blog's "Exponential Backoff And Jitter": read, write back, and on a
conflict wait and start over. It prints the time until the last client was done and the
number of writes, as mean and standard deviation over the trials.

With --outage, the service is unavailable for the given time instead. It prints the
number of requests that each policy wastes during the outage, the delay until clients
notice its end, and the number of clients that return within the same 50 ms.

A policy is a spec as penstock backoff takes it, or one of these names. Their settings
begin at 10 ms and end at 2 s:
` + policyNames(),
		Example: `  penstock sim backoff --clients 10,50,100,190 --policy full --policy recommended
  penstock sim backoff --clients 100 --policy "exponential base=20ms max=5s jitter=equal" --json
  penstock sim backoff --outage 50ms,5s,10m --clients 1,100`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntSliceVar(&f.clients, "clients", nil,
		"numbers of clients, one run each (default 10,50,100,190; 1,100 with --outage)")
	cmd.Flags().StringArrayVar(&f.policies, "policy", nil,
		"name or spec; may be repeated (default: all names)")
	cmd.Flags().IntVar(&f.trials, "trials", 100, "runs of each policy")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "the same seed gives the same figures")
	cmd.Flags().DurationSliceVar(&f.outages, "outage", nil,
		"outages of the service, such as `50ms,5s,10m`")
	cmd.Flags().Lookup("outage").DefValue = "" // otherwise the help would show []
	f.addFlags(cmd.Flags(), "print a line of JSON for each policy and number of clients")
	return cmd
}

// policyNames returns the names of the policies with their descriptions.
func policyNames() string {
	rows := make([][]string, 0, len(contention.Names))
	for _, n := range contention.Names {
		rows = append(rows, []string{"   ", n.Name, n.About})
	}
	return table.Text(rows, 3)
}

func (f contentionFlags) run(out io.Writer) error {
	if len(f.clients) == 0 {
		f.clients = []int{10, 50, 100, 190}
		if len(f.outages) > 0 {
			f.clients = []int{1, 100}
		}
	}
	if len(f.policies) == 0 {
		for _, n := range contention.Names {
			f.policies = append(f.policies, n.Name)
		}
	}
	for _, n := range f.clients {
		if n < 1 || n > maxClients {
			return usagef("sim backoff --clients: %d is not 1 to %d", n, maxClients)
		}
	}
	if f.trials < 1 || f.trials > maxTrials {
		return usagef("sim backoff --trials: %d is not 1 to %d", f.trials, maxTrials)
	}
	for _, d := range f.outages {
		if d <= 0 || d > maxOutage {
			return usagef("sim backoff --outage: %v is not above 0 and up to %v", d, maxOutage)
		}
	}
	policies := make([]backoff.Policy, len(f.policies))
	for i, text := range f.policies {
		p, err := contention.Resolve(text)
		if err != nil {
			return usagef("sim backoff --policy: %v", err)
		}
		policies[i] = p
	}
	if len(f.outages) > 0 {
		return f.outage(out, policies)
	}
	return f.contend(out, policies)
}

func (f contentionFlags) contend(out io.Writer, policies []backoff.Policy) error {
	var results []contentionResult
	rows := [][]string{{"policy", "clients", "time", "deviation", "calls", "deviation", "gave up"}}
	for i, p := range policies {
		for _, n := range f.clients {
			m := contention.Measure(p, n, f.trials, f.seed)
			r := contentionResult{
				Policy: f.policies[i], Clients: n, TimeMs: ms(m.Time),
				TimeSDMs: ms(m.TimeDeviation), Calls: m.Calls, CallsSD: m.CallsSD,
				GaveUp: m.GaveUp,
			}
			results = append(results, r)
			if err := f.line(out, r); err != nil {
				return err
			}
			rows = append(rows, []string{
				r.Policy, strconv.Itoa(n), short(m.Time), short(m.TimeDeviation), digits(m.Calls),
				digits(m.CallsSD), digits(m.GaveUp),
			})
		}
	}
	return f.finish(out, withoutZeros(rows),
		func() plot.Figure { return contentionFigure(f, results) })
}

func (f contentionFlags) outage(out io.Writer, policies []backoff.Policy) error {
	var results []outageResult
	rows := [][]string{{"policy", "outage", "clients", "wasted", "delay", "worst", "burst",
		"gave up"}}
	for _, length := range f.outages {
		for _, n := range f.clients {
			for i, p := range policies {
				l := contention.MeasureOutage(p, n, length, f.trials, f.seed)
				r := outageResult{
					Policy: f.policies[i], OutageMs: ms(length), Clients: n, Wasted: l.Wasted,
					DelayMs: ms(l.Delay), DelayWorstMs: ms(l.DelayWorst), Burst: l.Burst,
					GaveUp: l.GaveUp,
				}
				results = append(results, r)
				if err := f.line(out, r); err != nil {
					return err
				}
				rows = append(rows, []string{
					r.Policy, length.String(), strconv.Itoa(n), digits(l.Wasted), short(l.Delay),
					short(l.DelayWorst),
					digits(l.Burst), digits(l.GaveUp),
				})
			}
		}
	}
	return f.finish(out, withoutZeros(rows),
		func() plot.Figure { return outageFigure(f, results) })
}

// withoutZeros returns the rows as a table. It omits the last column if all of its values are 0.
func withoutZeros(rows [][]string) string {
	last := len(rows[0]) - 1
	if !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[last] != "0" }) {
		for i := range rows {
			rows[i] = rows[i][:last]
		}
	}
	return table.Text(rows, 1)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// digits formats a mean: with one decimal below 100, unless it is an integer.
func digits(x float64) string {
	if x >= 100 || x == float64(int64(x)) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 1, 64)
}

// contentionFigure draws the time until all clients are done and the number of calls, each against
// the number of clients.
func contentionFigure(f contentionFlags, results []contentionResult) plot.Figure {
	panel := func(title, label string, format func(float64) string,
		value func(contentionResult) float64) plot.Panel {
		p := plot.Panel{Title: title, X: plot.Axis{Label: "clients", Whole: true},
			Y: plot.Axis{Label: label, Format: format, Log: true}}
		for i, name := range f.policies {
			s := plot.Series{Name: name, Color: i, Dashed: i >= plot.Colors}
			for _, r := range results[i*len(f.clients) : (i+1)*len(f.clients)] {
				s.X, s.Y = append(s.X, float64(r.Clients)), append(s.Y, value(r))
			}
			p.Series = append(p.Series, s)
		}
		return p
	}
	return plot.Figure{
		Title: "Clients that contend for one row",
		Subtitle: "mean of " + strconv.Itoa(f.trials) +
			" trials, as penstock sim backoff prints it; less is better",
		Panels: []plot.Panel{
			panel("Until the last is done", "time", secondsText,
				func(r contentionResult) float64 { return r.TimeMs / 1000 }),
			panel("What it cost", "calls", nil,
				func(r contentionResult) float64 { return r.Calls }),
		},
	}
}

// outageFigure draws a row for each combination of the length of an outage and the number of
// clients. A row has three panels: the wasted attempts, the delay until success, and the largest
// burst.
func outageFigure(f contentionFlags, results []outageResult) plot.Figure {
	fig := plot.Figure{
		Title:    "A service that was away, and the clients that come back",
		Subtitle: "as penstock sim backoff --outage prints it; less is better",
		Columns:  3,
	}
	for from := 0; from < len(results); from += len(f.policies) {
		part := results[from : from+len(f.policies)]
		length := time.Duration(part[0].OutageMs * float64(time.Millisecond))
		head := strings.TrimSuffix(length.String(), "m0s")
		if head != length.String() {
			head += "m"
		}
		clients := " clients: "
		if part[0].Clients == 1 {
			clients = " client: "
		}
		head += " away, " + strconv.Itoa(part[0].Clients) + clients
		panel := func(title string, x plot.Axis, value func(outageResult) float64) {
			p := plot.Panel{Title: head + title, X: x}
			for i, r := range part {
				p.Bars = append(p.Bars, plot.Bar{Name: r.Policy, Value: value(r), Color: i})
			}
			fig.Panels = append(fig.Panels, p)
		}
		panel("wasted attempts", plot.Axis{Label: "attempts a client", Format: digits, Log: true},
			func(r outageResult) float64 { return r.Wasted })
		panel("delay", plot.Axis{Label: "from recovery to success", Format: secondsText, Log: true},
			func(r outageResult) float64 { return r.DelayMs / 1000 })
		panel("largest burst", plot.Axis{Label: "attempts within 50 ms", Format: digits},
			func(r outageResult) float64 { return r.Burst })
	}
	return fig
}
