//penstock:pure

package backoff

import (
	"math"
	"time"
)

// Bounder is implemented by every policy of this package and of compat: it computes the range of
// its waits without a draw.
type Bounder interface {
	// Bounds returns the lowest, the mean and the highest wait at step n, from 0. No draw leaves
	// [lowest, highest]. Past the end of the policy all are 0.
	Bounds(n int) (lowest, mean, highest time.Duration)
}

// Bounds returns the lowest, the mean and the highest wait of p at step n, from 0. Use it to
// compute a worst case in advance. Past the end of p all are 0. For a policy without a Bounds
// method, it returns 0, 0 and the largest Duration.
func Bounds(p Policy, n int) (lowest, mean, highest time.Duration) {
	if b, ok := p.(Bounder); ok {
		return b.Bounds(n)
	}
	return 0, 0, math.MaxInt64
}
