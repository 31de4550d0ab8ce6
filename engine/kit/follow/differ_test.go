package follow_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// firstDifference describes the first place where two texts differ.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d\n%s\n%s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d lines and %d", len(x), len(y))
}

// differ returns the missing and the surplus lines.
func differ(got, want []string) string {
	count := make(map[string]int)
	for _, line := range want {
		count[line]++
	}
	for _, line := range got {
		count[line]--
	}
	var missing, more []string
	for line, n := range count {
		if n > 0 {
			missing = append(missing, line)
		} else if n < 0 {
			more = append(more, line)
		}
	}
	slices.Sort(missing)
	slices.Sort(more)
	return fmt.Sprintf("%d lines are missing, %q; %d came again, %q",
		len(missing), missing[:min(5, len(missing))], len(more), more[:min(5, len(more))])
}

// seeds returns consecutive seeds from PENSTOCK_SEED on. If PENSTOCK_SEEDS is set, it is the number
// of seeds; otherwise their number is the parameter most.
func seeds(t testing.TB, most uint64) (list []uint64) {
	t.Helper()
	first := uint64(0)
	for name, to := range map[string]*uint64{"PENSTOCK_SEED": &first, "PENSTOCK_SEEDS": &most} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *to, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range most {
		list = append(list, first+n)
	}
	return list
}
