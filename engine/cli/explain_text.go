package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/internal/table"
)

// explainedWorker is a line of `explain --json`. See docs/cli.md. The names of its fields are
// stable.
type explainedWorker struct {
	Route         string   `json:"route"`
	At            float64  `json:"at_seconds"` // since the start of the sender (trace) or engine
	Worker        string   `json:"worker"`
	State         string   `json:"state"`
	Because       string   `json:"because"` // meaning of the state
	Reason        string   `json:"reason"`  // figures that led to the state
	Window        float64  `json:"window"`
	Algorithm     string   `json:"window_algorithm,omitempty"` // if known
	InFlight      int      `json:"in_flight"`
	Gate          string   `json:"gate"`
	GateMeans     string   `json:"gate_means"`
	WouldChange   []string `json:"would_change"`
	RoundTrip     float64  `json:"round_trip_seconds"`
	Base          float64  `json:"base_round_trip_seconds"`
	Timeout       float64  `json:"timeout_seconds"`
	Opens         float64  `json:"opens_in_seconds,omitempty"`
	Rate          float64  `json:"rate_per_second,omitempty"`
	Delivered     uint64   `json:"delivered"`
	Failed        uint64   `json:"failed"`
	TimedOut      uint64   `json:"timed_out"`
	Throttled     uint64   `json:"throttled"`
	Late          uint64   `json:"late"`
	Misconfigured bool     `json:"misconfigured"`
	// Time for which each gate limited the worker. Set for one worker of a trace.
	GateSeconds map[string]float64 `json:"gate_seconds,omitempty"`
	Steps       []explainedStep    `json:"steps,omitempty"` // last changes of one worker, oldest first
}

type explainedStep struct {
	At     float64 `json:"at_seconds"`
	State  string  `json:"state"`
	Window float64 `json:"window"`
	Reason string  `json:"reason"`
	Probes int     `json:"probes,omitempty"` // probes and measurements after it that changed nothing
}

// explainedRoute is the line of `explain --json` that follows the lines of a route's workers.
type explainedRoute struct {
	OK      bool    `json:"ok"`
	Route   string  `json:"route"`
	At      float64 `json:"at_seconds"`
	Workers int     `json:"workers"`
	Waiting int64   `json:"waiting"` // read, not in flight: batches of a trace, records of a process
	HeldBy  string  `json:"held_by"` // gate that limits the route, in words
}

func workerJSON(r *explain.Route, w *explain.Worker, at time.Duration) explainedWorker {
	out := explainedWorker{
		Route: r.Name, At: at.Seconds(), Worker: w.Name, State: w.State, Because: w.StateWords(), Reason: w.Reason,
		Window: w.Window, InFlight: w.InFlight, Gate: w.Gate, GateMeans: r.GateWords(w), WouldChange: r.Changes(w),
		RoundTrip: w.RoundTrip, Base: w.Base, Timeout: w.Timeout,
		Opens: w.Opens, Rate: w.Rate, Delivered: w.Delivered, Failed: w.Failed, TimedOut: w.TimedOut,
		Throttled: w.Throttled, Late: w.Late, Misconfigured: w.Misconfigured,
	}
	if r.Window != nil {
		out.Algorithm = r.Window.Name()
	}
	return out
}

func oneJSON(s *explain.Summary, w *explain.Worker) explainedWorker {
	out := workerJSON(&s.Route, w, s.At)
	for gate, d := range s.Shares {
		if out.GateSeconds == nil {
			out.GateSeconds = make(map[string]float64)
		}
		out.GateSeconds[gate] = d.Seconds()
	}
	for _, x := range s.Steps {
		out.Steps = append(out.Steps, explainedStep{x.At.Seconds(), x.State, x.Window, x.Reason, x.Probes})
	}
	return out
}

func explainAllJSON(out io.Writer, r *explain.Route, at time.Duration) error {
	for i := range r.Workers {
		if err := writeResult(out, workerJSON(r, &r.Workers[i], at)); err != nil {
			return err
		}
	}
	return writeResult(out, explainedRoute{true, r.Name, at.Seconds(), len(r.Workers), r.Waiting,
		r.HeldWords()})
}

func explainAllText(out io.Writer, r *explain.Route, when string) error {
	rows := [][]string{{"worker", "state", "gate", "window", "in flight", "round trip", "drained",
		"delivered", "failed", "overdue"}}
	for i := range r.Workers {
		w := &r.Workers[i]
		rows = append(rows, []string{
			printable(w.Name), w.State, w.Gate, strconv.FormatFloat(w.Window, 'f', 1, 64),
			strconv.Itoa(w.InFlight), seconds(w.RoundTrip),
			seconds(w.Base), thousands(int64(w.Delivered)), thousands(int64(w.Failed)), thousands(int64(w.TimedOut)),
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n\n%s\n", routeName(r), when, table.Text(rows, 3))
	seen := map[string]bool{}
	for i := range r.Workers {
		w := &r.Workers[i]
		if w.State != "NORMAL" && !seen[w.State] {
			seen[w.State] = true
			fmt.Fprintf(&b, "%s: %s\n", w.State, w.StateWords())
		}
	}
	for i := range r.Workers {
		w := &r.Workers[i]
		if w.State != "NORMAL" && w.Reason != "" {
			fmt.Fprintf(&b, "  %s: %s\n", printable(w.Name), reasonText(w.Reason))
		}
	}
	fmt.Fprintf(&b, "the limit of the route: %s\n", r.HeldWords())
	if r.LastFault != "" {
		fmt.Fprintf(&b, "the latest failure: %s\n", printable(r.LastFault))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func routeName(r *explain.Route) string {
	if r.Name == "" {
		return "a simulated route"
	}
	return "route " + r.Name
}

// moment returns the time that a summary describes, in words.
func moment(s *explain.Summary) string {
	text := after(s.At) + " after its start"
	if !s.About.Started.IsZero() {
		text += " (" + s.About.Started.Add(s.At).UTC().Format("2006-01-02 15:04:05.000 UTC") + ")"
	}
	if s.Over {
		text += ", where the trace ends"
	}
	if s.Ended != "" {
		text += ": " + s.Ended
	}
	return text
}

func explainOneText(out io.Writer, s *explain.Summary) error {
	w := &s.Workers[s.One]
	of := ""
	if s.Window != nil {
		of = " (" + s.Window.Name() + ")"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "worker %s of %s, %s\n\n", printable(w.Name), routeName(&s.Route), moment(s))
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("state", "%s: %s", w.State, w.StateWords())
	row("window", "%s%s, %d in flight", table.Number(w.Window), of, w.InFlight)
	if w.Reason != "" {
		row("because", "%s", reasonText(w.Reason))
	}
	row("gate", "%s: %s", w.Gate, s.GateWords(w))
	if shares := sharesText(s.Shares); shares != "" {
		row("", "since startup: %s of the time", shares)
	}
	row("round trip", "%s; %s when nothing queues; an attempt is overdue after %s",
		seconds(w.RoundTrip), seconds(w.Base), seconds(w.Timeout))
	row("so far", "%s delivered, %s failed, %s overdue (%s completed late), %s "+
		"throttled", thousands(int64(w.Delivered)),
		thousands(int64(w.Failed)), thousands(int64(w.TimedOut)), thousands(int64(w.Late)),
		thousands(int64(w.Throttled)))
	b.WriteString("\nchanges that would open the gate\n")
	for _, c := range s.Changes(w) {
		fmt.Fprintf(&b, "  - %s\n", c)
	}
	if len(s.Steps) > 0 {
		b.WriteString("\nrecent states\n")
		rows := [][]string{}
		for _, x := range s.Steps {
			reason := reasonText(x.Reason)
			if x.Probes > 0 {
				reason += fmt.Sprintf(" (probed %s since)", times(x.Probes))
			}
			rows = append(rows, []string{"  " + after(x.At), "window " + table.Number(x.Window), x.State, reason})
		}
		b.WriteString(table.Text(rows, 4))
	}
	if s.LastFault != "" && w.Gate == "breaker" {
		fmt.Fprintf(&b, "\nthe route's latest failure: %s\n", printable(s.LastFault))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// sharesText lists gates, which are limits on the sends to a worker, with the share of time for
// which each of them stopped the sends. The largest share comes first. Gates with a share below one
// percent are omitted.
func sharesText(shares map[string]time.Duration) string {
	var all time.Duration
	for _, d := range shares {
		all += d
	}
	gates := slices.SortedFunc(maps.Keys(shares), func(a, b string) int {
		return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(a, b))
	})
	var out []string
	for _, gate := range gates {
		if p := 100 * float64(shares[gate]) / float64(max(1, all)); p >= 1 {
			out = append(out, fmt.Sprintf("%s %.0f %%", gate, p))
		}
	}
	return strings.Join(out, ", ")
}

// after formats a time since the start as seconds.
func after(d time.Duration) string {
	return strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return thousands(int64(n)) + " times"
}

var longDuration = regexp.MustCompile(`\b[0-9]+\.[0-9]{3,}(ms|µs|s)\b`)

// reasonText shortens the durations in a reason given by flow control.
func reasonText(reason string) string {
	return printable(longDuration.ReplaceAllStringFunc(reason, func(text string) string {
		d, err := time.ParseDuration(text)
		if err != nil {
			return text
		}
		return seconds(d.Seconds())
	}))
}
