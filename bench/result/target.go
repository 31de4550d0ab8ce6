package result

import (
	"fmt"
	"math"
)

// Target is a bound on one figure of a line.
type Target struct {
	Metric string // of_limit, cpu_s_per_gb, rss_mb, lost, repeated, or a name in Line.Figures
	Bound  float64
	Least  bool // the bound is a minimum; otherwise it is a maximum
}

// metrics maps the names of metrics in results to formats for text, in which %s is the value.
var metrics = map[string]string{
	"of_limit": "%s of the limit", "cpu_s_per_gb": "%s CPU-s/GB", "rss_mb": "%s MiB",
	"lost": "%s lost", "repeated": "%s repeated",
	"in_flight": "%s in flight", "drain_s": "%s s to the last record", "cores": "%s cores",
	"kills":             "%s kills",
	"repeated_of_bound": "%s times the replay bound repeated",
}

// words returns a value of the metric with its unit.
func (t Target) words(v float64) string {
	form, ok := metrics[t.Metric]
	if !ok {
		form = t.Metric + " %s"
	}
	if v >= 1000 {
		return fmt.Sprintf(form, fmt.Sprintf("%.0f", v))
	}
	return fmt.Sprintf(form, fmt.Sprintf("%.3g", v))
}

// String returns the target as text, such as "≥ 0.5 of the limit".
func (t Target) String() string {
	switch {
	case t.Bound == 0 && !t.Least:
		return t.words(0)
	case t.Least:
		return "≥ " + t.words(t.Bound)
	}
	return "≤ " + t.words(t.Bound)
}

// Value returns the value of the metric in the line.
func (t Target) Value(l Line) float64 {
	switch t.Metric {
	case "of_limit":
		return l.OfLimit
	case "cpu_s_per_gb":
		return l.CPUPerGB
	case "rss_mb":
		return l.RSSMiB
	case "lost":
		return float64(l.Lost)
	case "repeated":
		return float64(l.Repeated)
	}
	return l.Figures[t.Metric]
}

// Missed returns a text that states by how much the line misses the target, or "" if the line meets
// the target.
func (t Target) Missed(l Line) string {
	v := t.Value(l)
	if t.Least && v >= t.Bound || !t.Least && v <= t.Bound {
		return ""
	}
	if t.Bound == 0 {
		return t.words(v)
	}
	by := 100 * math.Abs(v-t.Bound) / t.Bound
	if !t.Least && by >= 100 {
		return fmt.Sprintf("%s, %.1f times %.3g", t.words(v), v/t.Bound, t.Bound)
	}
	return fmt.Sprintf("%s, by %.0f %%", t.words(v), math.Max(1, by))
}
