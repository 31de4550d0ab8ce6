// Package result holds what a measurement says of one program on one workload, its form as a line
// of JSON, and what is kept of earlier ones: the ratios that may not fall.
package result

import (
	"bytes"
	"encoding/json"
	"errors"
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

	LimitMBPerS   float64            `json:"limit_mb_per_s,omitempty"`
	LimitCPUPerGB float64            `json:"limit_cpu_s_per_gb,omitempty"` // of the limit in the same pairs; 0: none
	Runs          int                `json:"runs,omitempty"`               // that the medians are of; with a limit, as many pairs
	Ratios        []float64          `json:"pairs,omitempty"`              // of each pair, in the order of the run
	Figures       map[string]float64 `json:"figures,omitempty"`            // p50_ms, p99_ms, in_flight, drain_s, cores, kills, ...: medians
	Missed        []string           `json:"missed,omitempty"`             // targets, in words
	Note          string             `json:"note,omitempty"`
}

// Entry is a line with the run it comes from, as files of results hold it.
type Entry struct {
	Line
	Run Run `json:"run"`
}

// TimeForm is how a run's time is written, in UTC.
const TimeForm = "2006-01-02 15:04"

// Run is where and how lines were measured.
type Run struct {
	Time     string            `json:"time"` // of its begin, as TimeForm
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

// Replace puts entries into a file, one a line, each in the place of what the file had of its
// workload and program, else at the end. Who is interrupted leaves the file as it was.
func Replace(path string, entries []Entry) error {
	all, err := Read(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var text bytes.Buffer
	for _, e := range last(append(all, entries...)) {
		if err := json.NewEncoder(&text).Encode(e); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Read reads files of entries. Of several lines of the same program and workload the last counts;
// the order is that of their first.
func Read(paths ...string) (all []Entry, err error) {
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
			all = append(all, e)
		}
	}
	return last(all), nil
}

func last(of []Entry) (all []Entry) {
	at := map[[2]string]int{}
	for _, e := range of {
		key := [2]string{e.Workload, e.Program}
		if i, again := at[key]; again {
			all[i] = e
			continue
		}
		at[key] = len(all)
		all = append(all, e)
	}
	return all
}

// Round leaves three digits behind the point, more of what is small.
func Round(x float64) float64 {
	unit := 1000.0
	if math.Abs(x) < 0.1 {
		unit = 1e6
	}
	return math.Round(x*unit) / unit
}

// Median of no values is 0; of an even number it is half way between the two in the middle.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
