// Package result has the types of results: a line of measurements of a program on a workload, and
// the kept ratios, with which later runs are compared.
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

// Line is the result of one program on one workload. In JSON, the first nine members are always
// present, in this order.
type Line struct {
	Workload string  `json:"workload"`
	Program  string  `json:"program"`
	MBPerS   float64 `json:"mb_per_s"` // 10^6 bytes of input per second; the median
	Limit    string  `json:"limit"`    // "none" where the workload has none
	OfLimit  float64 `json:"of_limit"` // median of the ratios of the pairs; 0 if there is no limit
	CPUPerGB float64 `json:"cpu_s_per_gb"`
	RSSMiB   float64 `json:"rss_mb"` // the largest peak in MiB
	Lost     int64   `json:"lost"`
	Repeated int64   `json:"repeated"`

	LimitMBPerS float64 `json:"limit_mb_per_s,omitempty"`
	// CPU time of the limit in the same pairs; 0 if there is no limit.
	LimitCPUPerGB float64 `json:"limit_cpu_s_per_gb,omitempty"`
	// Runs is the number of runs from which the medians are computed. If the workload has a limit,
	// it is the number of pairs, which consist of a run of the program and a run of the limit.
	Runs int `json:"runs,omitempty"`
	// Ratio of each pair, in the order of measurement.
	Ratios []float64 `json:"pairs,omitempty"`
	// Medians of further figures, such as p50_ms, p99_ms, in_flight, drain_s, cores and kills.
	Figures map[string]float64 `json:"figures,omitempty"`
	Missed  []string           `json:"missed,omitempty"` // missed targets, as text
	Note    string             `json:"note,omitempty"`
}

// Entry is a line with its run. Result files consist of entries.
type Entry struct {
	Line
	Run Run `json:"run"`
}

// TimeForm is the format of a run's time, in UTC.
const TimeForm = "2006-01-02 15:04"

// Run describes the machine and the command of a measurement.
type Run struct {
	Time     string            `json:"time"` // start time in the format TimeForm
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Command  string            `json:"command"`
}

// Spread returns the lowest and the highest ratio of the pairs.
func (l Line) Spread() (low, high float64) {
	if len(l.Ratios) == 0 {
		return l.OfLimit, l.OfLimit
	}
	return slices.Min(l.Ratios), slices.Max(l.Ratios)
}

// Write writes the line as JSON.
func (l Line) Write(w io.Writer) error { return json.NewEncoder(w).Encode(l) }

// Replace writes entries to the file at path, one on each line. If the file has an entry for the
// same workload and program, the new entry replaces it. Otherwise the new entry is appended. If
// Replace is interrupted, the file is unchanged.
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

// Read reads files of entries. If there are several entries for the same workload and program, it
// returns the last one, at the position of the first one.
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

// Round rounds x to three decimals, or to six if the absolute value of x is below 0.1.
func Round(x float64) float64 {
	unit := 1000.0
	if math.Abs(x) < 0.1 {
		unit = 1e6
	}
	return math.Round(x*unit) / unit
}

// Median returns the median of values. For an even number of values, it is the mean of the middle
// two. Without values it is 0.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
