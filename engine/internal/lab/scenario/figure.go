//penstock:pure

package scenario

import (
	"bytes"
	"slices"
	"strconv"
)

// Figure identifies a figure (a measured quantity) in [Figures].
type Figure uint8

// Values of Figure. docs/scenarios/README.md defines them.
const (
	Goodput Figure = iota
	Optimum
	Bloat
	RTTMean
	RTTP50
	RTTMax
	LatencyP50
	LatencyP99
	LatencyP999
	Overshoot
	Converge
	Recover
	AttemptsPerBatch
	DuplicatesPerBatch
	BadShare
	Jain
	WatermarkLag
	InFlightMean
	InFlightMax
	RateMean
	RejectedShare
	Finish
	figures
)

var figureNames = [figures]string{
	"goodput", "optimum", "bloat", "rtt_mean_ms", "rtt_p50_ms", "rtt_max_ms",
	"latency_p50_ms", "latency_p99_ms", "latency_p999_ms", "overshoot", "converge_s", "recover_s",
	"attempts_per_batch", "duplicates_per_batch", "bad_share", "jain", "watermark_lag_ms",
	"in_flight_mean", "in_flight_max", "rate_mean", "rejected_share", "finish_s",
}

// String returns the name of the figure in scenarios and JSON.
func (f Figure) String() string { return figureNames[f] }

// FigureNames returns the names of all figures.
func FigureNames() []string { return slices.Clone(figureNames[:]) }

func figureNamed(name string) (Figure, bool) {
	i := slices.Index(figureNames[:], name)
	return Figure(max(i, 0)), i >= 0
}

// moreIsBetter reports whether larger values of a figure are better.
func (f Figure) moreIsBetter() bool {
	switch f {
	case Goodput, Optimum, Jain, RateMean:
		return true
	}
	return false
}

// Figures has the figures of one run, or an aggregate of the figures of several runs. A figure that
// does not apply is 0.
type Figures [figures]float64

// AppendJSON appends the figures as members of a JSON object, without its braces.
func (f *Figures) AppendJSON(b []byte) []byte {
	for i, v := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, figureNames[i]...)
		b = append(b, '"', ':')
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	return b
}

// MarshalJSON returns a JSON object with all figures, in order.
func (f Figures) MarshalJSON() ([]byte, error) {
	b := f.AppendJSON([]byte{'{'})
	return bytes.Clone(append(b, '}')), nil
}

// Median returns the median of each figure over runs.
func Median(runs []Figures) Figures {
	return over(runs, func(_ Figure, v []float64) float64 {
		n := len(v)
		return (v[(n-1)/2] + v[n/2]) / 2
	})
}

// Worst returns the worst value of each figure over runs.
func Worst(runs []Figures) Figures {
	return over(runs, func(f Figure, v []float64) float64 {
		if f.moreIsBetter() {
			return v[0]
		}
		return v[len(v)-1]
	})
}

// Extreme returns the worst value of a bound's figure over the runs: the minimum for a lower bound,
// and the maximum for an upper bound.
func Extreme(runs []Figures, b *Bound) float64 {
	v := sorted(runs, b.Field)
	if b.Op == ">=" || b.Op == ">" {
		return v[0]
	}
	return v[len(v)-1]
}

func over(runs []Figures, pick func(Figure, []float64) float64) (out Figures) {
	if len(runs) == 0 {
		return out
	}
	for i := range out {
		f := Figure(i)
		out[i] = pick(f, sorted(runs, f))
	}
	return out
}

func sorted(runs []Figures, f Figure) []float64 {
	v := make([]float64, len(runs))
	for i := range runs {
		v[i] = runs[i][f]
	}
	slices.Sort(v)
	return v
}
