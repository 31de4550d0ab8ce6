package flowsim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// TestDropsAboveALevel runs generated scenarios with automatic timeouts. Their receiver drops an
// attempt if more than a certain number are in flight. The sender sees no response to such an
// attempt, although later ones are delivered, as with bad data that is never answered. The median
// of the goodput must reach a bound. PENSTOCK_FAMILIES=unequal runs 20 seeds.
func TestDropsAboveALevel(t *testing.T) {
	const least = 0.95
	seeds := 3
	if os.Getenv("PENSTOCK_FAMILIES") == "unequal" {
		seeds = 20
	}
	fmt.Sscan(os.Getenv("PENSTOCK_SEEDS"), &seeds)
	var goodput []float64
	for i := range uint64(seeds) {
		r := rand.New(rand.NewPCG(i+1, 17))
		limit, delay := 2+r.IntN(30), 20+r.IntN(180)
		s := parse(t, fmt.Sprintf("duration: 60s\nwarmup: 10s\nload: saturated\ntimeout: auto\n"+
			"link: { delay: %dms, jitter: %.2f, concurrency: { limit: %d, action: drop } }\n",
			delay, 0.2*float64(r.IntN(3)), limit))
		got := run(t, s, "queue", i+1)[scenario.Goodput]
		t.Logf("seed %d: a limit of %d, delay %d ms, jitter %v: goodput %.3f", i+1, limit, delay,
			s.Link.Jitter, got)
		goodput = append(goodput, got)
	}
	slices.Sort(goodput)
	if median := goodput[len(goodput)/2]; median < least {
		t.Errorf("the median of the goodput is %.3f, want at least %v", median, least)
	}
}
