//penstock:pure

package backoff

import (
	"math"
	"time"
)

// Bounder is implemented by every policy of this package and of compat. It computes the range of
// the waits without drawing one.
type Bounder interface {
	// Bounds returns the lowest, the mean and the highest wait at step n, counted from 0. No wait
	// drawn at step n lies outside [lowest, highest]. After the last wait of the policy, all three
	// are 0.
	Bounds(n int) (lowest, mean, highest time.Duration)
}

// Bounds returns the lowest, the mean and the highest wait of p at step n, counted from 0. Use it
// to compute the longest total wait in advance. After the last wait of p, all three are 0. For a
// policy without a Bounds method, they are 0, 0 and the largest Duration.
func Bounds(p Policy, n int) (lowest, mean, highest time.Duration) {
	if b, ok := p.(Bounder); ok {
		return b.Bounds(n)
	}
	return 0, 0, math.MaxInt64
}
