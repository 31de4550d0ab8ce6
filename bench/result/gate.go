package result

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// fall is the share by which a measured ratio may be below the kept ratio (see Kept). The
// differences between machines and between runs may be as large as this.
const fall = 0.20

// Kept has a ratio for each workload, from an earlier run: the speed of penstock divided by the
// speed of the workload's limit (see package limit). Later runs must reach at least 80 % of it (see
// fall).
type Kept map[string]float64

// Ratios are the kept ratios by machine. They differ between machines, because penstock uses
// several threads, and some limits use only one thread or wait for the disk.
type Ratios map[string]Kept

// ReadRatios reads a file of kept ratios.
func ReadRatios(path string) (Ratios, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Ratios
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Of returns the ratios for a machine. If a workload has no ratio for this machine, Of uses the
// lowest ratio of any machine, and others contains the workload.
func (r Ratios) Of(machine string) (kept Kept, others []string) {
	kept = Kept{}
	for _, k := range r {
		for w, ratio := range k {
			if least, ok := kept[w]; !ok || ratio < least {
				kept[w] = ratio
			}
		}
	}
	for _, w := range slices.Sorted(maps.Keys(kept)) {
		if own, ok := r[machine][w]; ok {
			kept[w] = own
		} else {
			others = append(others, w)
		}
	}
	return kept, others
}

// Write stores the ratios in the file at path, as those of a machine. Ratios of other workloads
// remain.
func (k Kept) Write(path, machine string) error {
	all, err := ReadRatios(path)
	if err != nil {
		return err
	}
	if all[machine] == nil {
		all[machine] = Kept{}
	}
	maps.Copy(all[machine], k)
	return all.Write(path)
}

// Write replaces the file at path.
func (r Ratios) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Fallen returns texts about two kinds of failures: results of penstock that are more than 20 %
// below the kept ratio of their workload, and workloads with a kept ratio that were not measured.
func (k Kept) Fallen(lines []Line) (fallen []string) {
	now := map[string]float64{}
	for _, l := range lines {
		if l.Program == "penstock" {
			now[l.Workload] = l.OfLimit
		}
	}
	for _, w := range slices.Sorted(maps.Keys(k)) {
		got, measured := now[w]
		switch {
		case !measured:
			fallen = append(fallen, w+" was not measured")
		case got < k[w]*(1-fall):
			less := 100 * (1 - got/k[w])
			fallen = append(fallen, fmt.Sprintf(
				"%s reaches %.3f of its limit, %.0f %% below the %.3f kept", w, got, less, k[w]))
		}
	}
	return fallen
}
