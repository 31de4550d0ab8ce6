package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/internal/table"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// runResult is the last line of `run --json`. See docs/cli.md. The names of its fields are stable.
type runResult struct {
	OK        bool          `json:"ok"`
	Error     string        `json:"error,omitempty"`
	Seconds   float64       `json:"seconds"`
	Pipelines []routeResult `json:"pipelines"`
}

// routeResult has the counts of one route. ReadRecords always equals the sum of Delivered, Dead,
// Dropped, InFlight, Waiting and Parked.
type routeResult struct {
	Pipeline    string `json:"pipeline"`
	Route       string `json:"route"`
	ReadRecords int64  `json:"read_records"`
	ReadBytes   int64  `json:"read_bytes"`
	Delivered   int64  `json:"delivered"`
	Dead        int64  `json:"dead"`
	Dropped     int64  `json:"dropped"`
	InFlight    int64  `json:"in_flight"`
	Waiting     int64  `json:"waiting"`
	Parked      int64  `json:"parked,omitempty"`
	Attempts    int64  `json:"attempts"`
	Redelivered int64  `json:"redelivered"`

	SourceCounters map[string]int64 `json:"source_counters,omitempty"` // of the source's reader
}

func result(s engine.Status, wall time.Duration, err error) runResult {
	out := runResult{OK: err == nil, Seconds: wall.Round(time.Microsecond).Seconds(), Pipelines: []routeResult{}}
	if err != nil {
		out.Error = stream.MaskURLs(err.Error())
	}
	for _, r := range s.Routes {
		out.Pipelines = append(out.Pipelines, routeResult{
			Pipeline: r.Pipeline, Route: r.Name, ReadRecords: r.ReadRecords, ReadBytes: r.ReadBytes,
			Delivered: r.Delivered, Dead: r.Dead, Dropped: r.Dropped, InFlight: r.InFlight, Waiting: r.Waiting,
			Parked:   r.Parked,
			Attempts: r.Attempts, Redelivered: r.Redelivered, SourceCounters: r.SourceCounters,
		})
	}
	return out
}

// elapsed returns the running time of an engine.
func elapsed(s engine.Status) time.Duration { return time.Duration(s.Seconds * float64(time.Second)) }

// writeResult writes one object on one line.
func writeResult(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// summary returns the table that is printed at the end of a run. If the run failed before it had
// read anything, summary returns "".
func summary(s engine.Status, err error) string {
	rows := [][]string{{
		"pipeline", "route", "records read", "bytes read", "delivered", "dead", "dropped",
		"waiting", "redelivered", "seconds", "MB/s",
	}}
	var read, repeat, bound int64
	met := ""
	for _, r := range s.Routes {
		if counters := countersText(r.SourceCounters); counters != "" {
			met += fmt.Sprintf("%s/%s, met by %s: %s\n", r.Pipeline, r.Name, r.Source, counters)
		}
		read += r.ReadRecords
		repeat += r.ReplayBytes
		bound += r.ReplayBoundBytes
		rows = append(rows, []string{
			r.Pipeline, r.Name, thousands(r.ReadRecords), bytesText(r.ReadBytes),
			thousands(r.Delivered), thousands(r.Dead),
			thousands(r.Dropped), thousands(r.InFlight + r.Waiting),
			counted(r.Redelivered, "batch", "batches"),
			strconv.FormatFloat(elapsed(s).Seconds(), 'f', 2, 64), rate(r.ReadBytes, elapsed(s)),
		})
	}
	var b strings.Builder
	if read == 0 && err != nil {
		return ""
	}
	switch {
	case read > 0:
		b.WriteString(table.Text(rows, 2))
	case s.Reload != nil: // which resets the counts of the routes that it changes
		b.WriteString("nothing new was read since the last reload\n")
	default:
		b.WriteString("nothing new was read\n")
	}
	b.WriteString(met)
	b.WriteString(parkedText(s.Routes))
	fmt.Fprintf(&b, "a kill now would repeat at most %s; at any moment at most %s\n",
		bytesText(repeat), bytesText(bound))
	return b.String()
}

// parkedText returns a line for each route that has parked records. A sink that parks records
// stores them until their next attempt is due.
func parkedText(routes []status.Route) string {
	var b strings.Builder
	for _, r := range routes {
		if r.Parked > 0 {
			records := counted(r.Parked, "record is", "records are")
			fmt.Fprintf(&b, "%s/%s: %s parked\n", r.Pipeline, r.Name, records)
		}
	}
	return b.String()
}

// countersText returns the counters that are not 0, sorted by name.
func countersText(counters map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if n := counters[name]; n != 0 {
			parts = append(parts, name+" "+thousands(n))
		}
	}
	return strings.Join(parts, ", ")
}

// progress returns one line for each route. If there are more than mostRoutes, it returns one line
// for all of them.
func progress(s engine.Status) string {
	if len(s.Routes) > mostRoutes {
		sum := sumOf(s.Routes)
		for _, r := range s.Routes {
			sum.Workers = append(sum.Workers, r.Workers...)
		}
		return progressLine(fmt.Sprintf("all %d routes", len(s.Routes)), sum, elapsed(s))
	}
	var b strings.Builder
	for _, r := range s.Routes {
		b.WriteString(progressLine(r.Pipeline+"/"+r.Name, r, elapsed(s)))
	}
	return b.String()
}

func progressLine(name string, r status.Route, elapsed time.Duration) string {
	line := fmt.Sprintf("%s after %s: read %s (%s), delivered %s, dead %s, dropped %s, in "+
		"flight %s, waiting %s, %s MB/s",
		name, elapsed.Round(time.Second), count(r.ReadRecords, "record"),
		bytesText(r.ReadBytes), thousands(r.Delivered), thousands(r.Dead), thousands(r.Dropped),
		thousands(r.InFlight), thousands(r.Waiting), rate(r.ReadBytes, elapsed))
	if r.Redelivered > 0 {
		line += ", redelivered " + counted(r.Redelivered, "batch", "batches")
	}
	if r.Parked > 0 {
		line += ", parked " + thousands(r.Parked)
	}
	states := map[string]int{}
	for _, w := range r.Workers {
		if !explain.IdleSlow(w.State, w.Gate, w.InFlight) {
			states[w.State]++
		}
	}
	for _, state := range []string{"SLOW", "BUSY", "PROBING", "OPEN", "THROTTLED"} {
		if n := states[state]; n > 0 {
			line += fmt.Sprintf(", %d of %d workers %s", n, len(r.Workers), state)
		}
	}
	if r.Health == "stopped" || r.Health == "restarting" {
		line += ", " + strings.ToUpper(r.Health)
	}
	return line + "\n"
}

// thousands formats 1234567 as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// bytesText formats a number of bytes with about three digits and a unit such as MB. A unit is 1000
// times the one below.
func bytesText(n int64) string {
	units := []string{"kB", "MB", "GB", "TB", "PB", "EB"}
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n)
	for _, unit := range units {
		if v /= 1000; v < 999.5 || unit == "EB" {
			return strconv.FormatFloat(v, 'f', decimals(v), 64) + " " + unit
		}
	}
	return ""
}

func decimals(v float64) int {
	switch {
	case v < 9.995:
		return 2
	case v < 99.95:
		return 1
	}
	return 0
}

// rate formats a rate in MB per second. It returns "-" if no time has passed.
func rate(bytes int64, elapsed time.Duration) string {
	if elapsed <= 0 {
		return "-"
	}
	v := float64(bytes) / 1e6 / elapsed.Seconds()
	return strconv.FormatFloat(v, 'f', decimals(v), 64)
}

// count returns a number with its noun.
func count(n int64, noun string) string { return counted(n, noun, noun+"s") }

// counted returns a number with its noun in the singular or plural.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}
