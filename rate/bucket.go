//penstock:pure

package rate

import (
	"math"
	"time"
)

// Bucket is a token bucket, for programs that have a loop of their own: tokens flow into it at a
// constant rate, those beyond its burst are lost, and each event takes some out. It is pure: time
// is passed in, as the time since some origin, and must not go back. It allocates nothing and is
// not safe for concurrent use. The zero value holds no token and never will; make a full bucket
// with [NewBucket].
type Bucket struct {
	rate, burst float64
	tokens      float64 // at the time filled
	filled      time.Duration
}

// NewBucket returns a full bucket. rate is in tokens a second. Negative values of rate and burst
// count as 0.
func NewBucket(rate, burst float64) Bucket {
	return Bucket{rate: max(rate, 0), burst: max(burst, 0), tokens: max(burst, 0)}
}

// slack absorbs the rounding of sums of fractions.
const slack = 1e-9

// Tokens returns the number of tokens in the bucket. It is negative while tokens are owed.
func (b *Bucket) Tokens(now time.Duration) float64 {
	return min(b.tokens+b.rate*max(now-b.filled, 0).Seconds(), b.burst)
}

// Take takes n tokens and returns true, or takes none and returns false if there are fewer.
func (b *Bucket) Take(now time.Duration, n float64) bool {
	tokens := b.Tokens(now)
	if tokens < n-slack {
		return false
	}
	b.tokens, b.filled = tokens-n, now
	return true
}

// Add puts n tokens in, up to the burst. A negative n takes tokens out even if there are fewer: the
// bucket then owes them.
func (b *Bucket) Add(now time.Duration, n float64) {
	b.tokens, b.filled = min(b.Tokens(now)+n, b.burst), now
}

// Wait returns the time until the bucket has n tokens if nobody takes any. n may exceed the burst:
// the result is then the time for several events in a row. If tokens are missing and the rate is 0,
// the result is the longest Duration.
func (b *Bucket) Wait(now time.Duration, n float64) time.Duration {
	missing := n - b.Tokens(now)
	if missing <= slack {
		return 0
	}
	seconds := missing / b.rate
	if !(seconds < math.MaxInt64/float64(time.Second)) {
		return math.MaxInt64
	}
	return time.Duration(math.Ceil(seconds * float64(time.Second)))
}

// Set changes rate and burst from now on.
func (b *Bucket) Set(now time.Duration, rate, burst float64) {
	tokens := b.Tokens(now)
	b.rate, b.burst, b.filled = max(rate, 0), max(burst, 0), now
	b.tokens = min(tokens, b.burst)
}
