//penstock:pure

package backoff

import (
	"iter"
	"math/rand/v2"
	"time"
)

// Delays returns an iterator over the waits of p from its start. It yields the step, counted from
// 0, and the wait. The iteration ends where p gives up. If p never gives up, the loop must break.
// The source src is passed to [Policy].Next.
//
//	for n, d := range backoff.Delays(p, nil) { ... }
func Delays(p Policy, src rand.Source) iter.Seq2[int, time.Duration] {
	return func(yield func(int, time.Duration) bool) {
		var s State
		for n := 0; ; n++ {
			d, next, ok := p.Next(s, src)
			if !ok || !yield(n, d) {
				return
			}
			s = next
		}
	}
}
