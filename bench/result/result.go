// Package result holds what a measurement says of one program on one workload, its form as a line of JSON, and what is kept of
// earlier ones: the ratios that may not fall.
package result

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// Line is one program on one workload. The first nine members are always there, in this order.
type Line struct {
	Workload string  `json:"workload"`
	Program  string  `json:"program"`
	MBPerS   float64 `json:"mb_per_s"` // 10^6 bytes of input a second, the median
	Limit    string  `json:"limit"`    // "none" where the workload has none
	OfLimit  float64 `json:"of_limit"` // the median of the ratios of the pairs; 0 without a limit
	CPUPerGB float64 `json:"cpu_s_per_gb"`
	RSSMiB   float64 `json:"rss_mb"` // the largest peak, MiB
	Lost     int64   `json:"lost"`
	Repeated int64   `json:"repeated"`

	LimitMBPerS float64            `json:"limit_mb_per_s,omitempty"`
	Ratios      []float64          `json:"pairs,omitempty"`   // of each pair, in the order of the run
	Figures     map[string]float64 `json:"figures,omitempty"` // p50_ms, p99_ms, in_flight, drain_s, cores, kills, ...: medians
	Missed      []string           `json:"missed,omitempty"`  // targets, in words
	Note        string             `json:"note,omitempty"`
}

// Entry is a line with the run it comes from, as files of results hold it.
type Entry struct {
	Line
	Run Run `json:"run"`
}

// Run is where and how lines were measured.
type Run struct {
	Time     string            `json:"time"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Command  string            `json:"command"`
}

// Spread is the lowest and highest ratio of the pairs.
func (l Line) Spread() (low, high float64) {
	if len(l.Ratios) == 0 {
		return l.OfLimit, l.OfLimit
	}
	return slices.Min(l.Ratios), slices.Max(l.Ratios)
}

// Write writes the line as JSON.
func (l Line) Write(w io.Writer) error { return json.NewEncoder(w).Encode(l) }

// Append adds entries to a file, one a line.
func Append(path string, entries []Entry) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, entry := range entries {
		if err := e.Encode(entry); err != nil {
			return err
		}
	}
	return f.Close()
}

// Read reads files of entries. Of several lines of the same program and workload the last counts; the order is that of their
// first.
func Read(paths ...string) (all []Entry, err error) {
	at := map[[2]string]int{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for d := json.NewDecoder(f); ; {
			var e Entry
			if err := d.Decode(&e); err == io.EOF {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			key := [2]string{e.Workload, e.Program}
			if i, again := at[key]; again {
				all[i] = e
				continue
			}
			at[key] = len(all)
			all = append(all, e)
		}
	}
	return all, nil
}

// Round leaves three digits behind the point, more of what is small.
func Round(x float64) float64 {
	unit := 1000.0
	if math.Abs(x) < 0.1 {
		unit = 1e6
	}
	return math.Round(x*unit) / unit
}

// Median of no values is 0; of an even number it is the upper of the two in the middle.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
