package result

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// fall is how much of a kept ratio may be gone before the gate closes: machines differ, and so do moments on one.
const fall = 0.20

// Kept are the ratios of penstock against the limits that the repository remembers, by workload.
type Kept map[string]float64

// ReadKept reads them.
func ReadKept(path string) (Kept, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var k Kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// Write replaces in the file what k holds.
func (k Kept) Write(path string) error {
	if before, err := ReadKept(path); err == nil {
		maps.Copy(before, k)
		k = before
	}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Fallen says which of the lines are more than 20 % below what is kept, and which kept ones were not measured.
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
