package vectors

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPointsOfWholeSteps checks that a case of kind exact may list single steps, also those after
// the end of the policy.
func TestPointsOfWholeSteps(t *testing.T) {
	s := Subject{At: func(n int, _ rand.Source) (time.Duration, bool) {
		return time.Duration(n), n < 9
	}}
	points := []Point{{N: 2, Delay: 2}, {N: 7, Delay: 7}, {N: 9, Error: "the end"}}
	Check(t, Case{Kind: "exact", Points: points}, s)
}

// TestRareValuesAreNotCorrelated checks that two steps with rare values may have a correlation that
// differs from the library's as much as those of independent draws do.
func TestRareValuesAreNotCorrelated(t *testing.T) {
	for seed := range uint64(20) {
		random, corr := rand.New(rand.NewPCG(seed, 0)), 0.0046
		s := Sample{samples: 20_000, step: Step{N: 1, Corr: &corr}}
		for range 4000 {
			s.before = append(s.before, time.Duration(min(random.IntN(70), 1)))
			s.ours = append(s.ours, time.Duration(min(random.IntN(100), 1)))
		}
		s.checkCorrelation(t)
	}
}
