package flowsim_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// TestEnginesScale checks that three engines, with three times the workers of one, deliver the same
// backlog in a third of the time. The engines share all workers, and do not know of each other.
func TestEnginesScale(t *testing.T) {
	const least, seeds = 2.85, 5 // least speedup of three engines
	finish := func(algorithm string, engines int, seed uint64) float64 {
		s := parse(t, fmt.Sprintf("duration: 600s\nload: { batches: 24000 }\nsenders: %d\n"+
			"service: exponential\nnetwork: { rtt: 10ms }\nworkers:\n"+
			"  - { count: %d, rate: 100 }\n  - { count: %[2]d, rate: 50 }\n"+
			"  - { count: %[2]d, rate: 10 }\n", engines, engines))
		return run(t, s, algorithm, seed)[scenario.Finish]
	}
	for _, algorithm := range []string{"queue", "credit"} {
		var speedup []float64
		for seed := range uint64(seeds) {
			one, three := finish(algorithm, 1, seed+1), finish(algorithm, 3, seed+1)
			t.Logf("%s, seed %d: %.1f s with one engine, %.1f s with three: %.2f times", algorithm,
				seed+1, one, three, one/three)
			speedup = append(speedup, one/three)
		}
		slices.Sort(speedup)
		if median := speedup[seeds/2]; !(median >= least) {
			t.Errorf("%s: three engines are %.2f times as fast as one, want %v", algorithm, median, least)
		}
	}
}
