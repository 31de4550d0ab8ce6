package flowsim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// unequalFamily generates scenarios with many unequal workers, each from its own seed.
type unequalFamily struct {
	name      string
	algorithm string
	figure    scenario.Figure
	least     float64 // median over the scenarios; 0: most counts
	most      float64
	text      func(r *rand.Rand) string
}

// rates returns n workers with the given number of different speeds. Each speed is a third to a
// half of the next higher one.
func rates(r *rand.Rand, n, speeds int) string {
	var b strings.Builder
	for i, rate := 0, 100.0; i < speeds; i++ {
		count := n / (speeds - i)
		n -= count
		fmt.Fprintf(&b, "  - { count: %d, rate: %.0f }\n", count, max(2, rate))
		rate /= 2 + r.Float64()
	}
	return b.String()
}

const unequalRest = "service: exponential\nnetwork: { rtt: 10ms }\ntimeout: auto\n"

var unequalFamilies = []unequalFamily{
	{
		name: "17 to 21 workers of four or five speeds, saturated", algorithm: "credit",
		figure: scenario.Goodput, least: 0.98,
		text: func(r *rand.Rand) string {
			return "duration: 80s\nwarmup: 20s\nload: saturated\n" + unequalRest + "workers:\n" +
				rates(r, 17+r.IntN(5), 4+r.IntN(2))
		},
	},
	{
		name: "three or four senders, saturated", algorithm: "queue",
		figure: scenario.Jain, least: 0.98,
		text: func(r *rand.Rand) string {
			return fmt.Sprintf("duration: 160s\nwarmup: 60s\nsenders: %d\nload: saturated\n",
				3+r.IntN(2)) + unequalRest + "workers:\n" + rates(r, 12, 4)
		},
	},
	{
		// The bound of the scenario s04 is an absolute time: 195 ms at 90 % load, with a slowest
		// worker of 5 batches a second. The scenarios of this family have different optima. So
		// their bound is relative to the result with credit windows.
		name: "open loop at 80 %", algorithm: "queue",
		figure: scenario.LatencyP99, most: 1.1,
		text: func(r *rand.Rand) string {
			return "duration: 120s\nwarmup: 20s\nload: { poisson: 0.80 }\n" + unequalRest +
				"workers:\n" + rates(r, 10+r.IntN(5), 4+r.IntN(2))
		},
	},
}

// TestUnequalFamilies runs generated scenarios with many unequal workers. With
// PENSTOCK_FAMILIES=unequal, it runs 20 seeds, and each family must keep its bound. Otherwise, it
// runs one seed for a few seconds of simulated time. In each run, the goodput must be at least half
// of the optimum.
func TestUnequalFamilies(t *testing.T) {
	whole, seeds := os.Getenv("PENSTOCK_FAMILIES") == "unequal", 1
	if whole {
		seeds = 20
	}
	fmt.Sscan(os.Getenv("PENSTOCK_SEEDS"), &seeds)
	for _, f := range unequalFamilies {
		t.Run(f.name, func(t *testing.T) {
			var runs []scenario.Figures
			for i := range seeds {
				s := parse(t, f.text(rand.New(rand.NewPCG(uint64(i)+1, 22))))
				if !whole {
					s.Duration, s.Warmup = 6*time.Second, 3*time.Second
				}
				got := run(t, s, f.algorithm, uint64(i)+1)
				if f.most > 0 { // relative to credit
					got[f.figure] /= run(t, s, "credit", uint64(i)+1)[f.figure]
				}
				t.Logf("seed %d: %s %v %.3f", i+1, f.algorithm, f.figure, got[f.figure])
				runs = append(runs, got)
				if got[scenario.Goodput] < 0.5 {
					t.Errorf("seed %d: goodput is %.3f, want at least 0.5", i+1,
						got[scenario.Goodput])
				}
			}
			median := scenario.Median(runs)[f.figure]
			t.Logf("median of %d seeds: %v %.3f", seeds, f.figure, median)
			if whole && (median < f.least || f.most > 0 && median > f.most) {
				t.Errorf("the median of %v is %.3f, want at least %v and at most %v", f.figure,
					median, f.least, f.most)
			}
		})
	}
}
