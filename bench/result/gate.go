package result

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// fall is how much of a kept ratio may be gone before the gate closes: machines differ, and so do
// moments on one.
const fall = 0.20

// Kept are ratios of penstock against the limits, by workload.
type Kept map[string]float64

// Ratios are those that the repository remembers, by machine: a program of four threads beside one
// of a single thread, or one that waits for the disk, is another multiple of it on another
// processor.
type Ratios map[string]Kept

// ReadRatios reads them.
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

// Of returns what holds for a machine: the ratios that were kept on it, and for the workloads of
// which it has none, which are named, the lowest of the other machines.
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

// Write replaces in the file what k holds of a machine.
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

// Write replaces the file.
func (r Ratios) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Fallen says which of the lines are more than 20 % below what is kept, and which kept ones were
// not measured.
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
			fallen = append(fallen, fmt.Sprintf("%s reaches %.3f of its limit, %.0f %% below the %.3f kept", w, got, less, k[w]))
		}
	}
	return fallen
}
