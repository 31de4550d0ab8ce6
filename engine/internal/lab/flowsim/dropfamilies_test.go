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

// TestBadDataAboveALevel runs scenarios with bad data. Their receiver refuses an attempt at once if
// more than 20 are in flight. Several refusals may then follow each other within milliseconds. They
// must not pause the worker, which delivers all the time.
func TestBadDataAboveALevel(t *testing.T) {
	for _, c := range []struct{ bad, least float64 }{{0.01, 0.92}, {0.05, 0.92}, {0.3, 0.85}} {
		s := parse(t, fmt.Sprintf("duration: 60s\nwarmup: 10s\nload: saturated\n"+
			"bad: { after: 1ms, share: %v }\nlink: { delay: 100ms, "+
			"concurrency: { limit: 20, action: defer, after: 1ms } }\ntimeout: 1s\n", c.bad))
		var goodput []float64
		for seed := range uint64(3) {
			goodput = append(goodput, run(t, s, "queue", seed+1)[scenario.Goodput])
		}
		slices.Sort(goodput)
		if t.Logf("%v bad: goodput %.3f", c.bad, goodput); goodput[1] < c.least {
			t.Errorf("%v bad: the median of the goodput is %.3f, want at least %v", c.bad, goodput[1],
				c.least)
		}
	}
}
