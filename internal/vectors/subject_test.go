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
