// Package result represents the measurements of a program on a workload, their form as a line of
// JSON, and the kept results of earlier runs: the ratios that must not decrease.
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

	LimitMBPerS float64 `json:"limit_mb_per_s,omitempty"`
	// of the limit in the same pairs; 0 without a limit
	LimitCPUPerGB float64 `json:"limit_cpu_s_per_gb,omitempty"`
	// number of runs behind the medians; with a limit, number of pairs
	Runs int `json:"runs,omitempty"`
	// of each pair, in the order of the run
	Ratios []float64 `json:"pairs,omitempty"`
	// p50_ms, p99_ms, in_flight, drain_s, cores, kills, ...: medians
	Figures map[string]float64 `json:"figures,omitempty"`
	Missed  []string           `json:"missed,omitempty"` // targets, in words
	Note    string             `json:"note,omitempty"`
}

// Entry is a line with its run, as stored in result files.
type Entry struct {
	Line
	Run Run `json:"run"`
}

// TimeForm is the format of a run's time, in UTC.
const TimeForm = "2006-01-02 15:04"

// Run describes the machine and the command of a measurement.
type Run struct {
	Time     string            `json:"time"` // of its begin, as TimeForm
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Command  string            `json:"command"`
}

// Spread returns the lowest and highest ratio of the pairs.
func (l Line) Spread() (low, high float64) {
	if len(l.Ratios) == 0 {
		return l.OfLimit, l.OfLimit
	}
	return slices.Min(l.Ratios), slices.Max(l.Ratios)
}

// Write writes the line as JSON.
func (l Line) Write(w io.Writer) error { return json.NewEncoder(w).Encode(l) }

// Replace writes entries to a file, one per line. Each replaces the entry of the same workload and
// program, or is appended. If interrupted, it leaves the file unchanged.
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

// Read reads files of entries. Of several entries of the same program and workload the last counts,
// at the position of the first.
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

// Round rounds to three decimals, or more for small values.
func Round(x float64) float64 {
	unit := 1000.0
	if math.Abs(x) < 0.1 {
		unit = 1e6
	}
	return math.Round(x*unit) / unit
}

// Median returns the median; 0 without values, the mean of the middle two for an even number.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
