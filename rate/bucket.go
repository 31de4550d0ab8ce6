//penstock:pure

package rate

import (
	"math"
	"time"
)

// Bucket is a token bucket, for programs that have an event loop. Tokens flow into it at a constant
// rate, up to its burst, and each event takes tokens out. A Bucket reads no clock: the caller
// passes the time in, as the time since some origin. The time must not decrease. A Bucket allocates
// nothing and is not safe for concurrent use. Make a full bucket with [NewBucket]: the zero value
// is empty, and stays so until Set.
type Bucket struct {
	rate, burst float64
	tokens      float64 // at the time filled
	filled      time.Duration
}

// NewBucket returns a full bucket. rate is in tokens a second. A rate or burst that is negative or
// NaN counts as 0, and an infinite one as the largest float64.
func NewBucket(rate, burst float64) Bucket {
	burst = finite(burst)
	return Bucket{rate: finite(rate), burst: burst, tokens: burst}
}

// finite returns x, but at least 0 and at most the largest float64. For NaN it returns 0.
func finite(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, math.MaxFloat64)
}

// slack is the number of tokens that may be missing because of rounding errors.
const slack = 1e-9

// Tokens returns the number of tokens in the bucket. It is negative after Add took out more tokens
// than there were.
func (b *Bucket) Tokens(now time.Duration) float64 {
	return min(b.tokens+b.rate*max(now-b.filled, 0).Seconds(), b.burst)
}

// Take takes n tokens and returns true, or takes none and returns false if there are fewer.
func (b *Bucket) Take(now time.Duration, n float64) bool {
	tokens := b.Tokens(now)
	if !(tokens >= n-slack) { // also if n is NaN
		return false
	}
	b.tokens, b.filled = tokens-n, now
	return true
}

// Add puts n tokens in, up to the burst. A negative n takes tokens out, even more than there are:
// the number of tokens is then negative.
func (b *Bucket) Add(now time.Duration, n float64) {
	b.tokens, b.filled = min(b.Tokens(now)+n, b.burst), now
}

// Wait returns the time until the bucket has n tokens if no tokens are taken meanwhile. If n
// exceeds the burst, the result is the time in which n tokens flow in, although the bucket never
// holds n at once. If tokens are missing and the rate is 0, the result is the longest Duration.
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

// Set changes rate and burst from now on. Tokens above the new burst are lost.
func (b *Bucket) Set(now time.Duration, rate, burst float64) {
	tokens := b.Tokens(now)
	b.rate, b.burst, b.filled = finite(rate), finite(burst), now
	b.tokens = min(tokens, b.burst)
}
