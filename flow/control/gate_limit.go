//penstock:pure

package control

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-io/penstock/rate"
)

// Limit bounds the rate of attempts, or their number in flight, in addition to the windows. The
// zero value means no limit.
type Limit struct {
	Rate        float64 // cost a second, such as records; 0 means no limit
	Bytes       float64 // bytes a second; 0 means no limit
	Concurrency int     // attempts in flight, overdue ones included; 0 means no limit
}

func (l Limit) validate() error {
	if !(l.Rate >= 0) || !(l.Bytes >= 0) || math.IsInf(l.Rate, 0) || math.IsInf(l.Bytes, 0) || l.Concurrency < 0 {
		return fmt.Errorf("a limit of %v a second, %v bytes a second and %d attempts: want "+
			"positive numbers, or 0 for none",
			l.Rate, l.Bytes, l.Concurrency)
	}
	return nil
}

// bucketGate lets attempts start while its bucket is not empty. An attempt may take more tokens
// than the bucket holds; later attempts then wait until the debt is paid. So in t seconds, attempts
// take at most perSecond * t tokens, plus the capacity of the bucket and the tokens of one attempt.
type bucketGate struct {
	bucket rate.Bucket
	tokens func(a *attempt) float64
}

const (
	burst     = 0.1  // capacity of the bucket, in seconds of tokens; at least one token
	minTokens = 1e-6 // fraction of a token that counts as none
)

// newBucketGate returns a bucketGate, or nil if there is no limit.
func newBucketGate(perSecond float64, tokens func(a *attempt) float64) gate {
	if perSecond == 0 {
		return nil
	}
	return &bucketGate{rate.NewBucket(perSecond, max(1, burst*perSecond)), tokens}
}

func (l Limit) quota() gate {
	return newBucketGate(l.Rate, func(a *attempt) float64 { return a.cost })
}

func (l Limit) bytes() gate {
	return newBucketGate(l.Bytes, func(a *attempt) float64 { return float64(a.item.bytes) })
}

func (l Limit) slots() gate {
	if l.Concurrency == 0 {
		return nil
	}
	return &slots{limit: l.Concurrency}
}

func (g *bucketGate) room(now time.Duration) int {
	if g.bucket.Tokens(now) < minTokens/2 {
		return 0
	}
	return 1 // room is called again after each start
}

func (g *bucketGate) next(now time.Duration) (time.Duration, bool) {
	wait := g.bucket.Wait(now, minTokens)
	return now + wait, wait > 0
}

func (g *bucketGate) started(now time.Duration, a *attempt) (timed bool) {
	g.bucket.Add(now, -g.tokens(a))
	_, timed = g.next(now)
	return timed
}

func (g *bucketGate) ended(*attempt) {}

// slots bounds attempts in flight, overdue ones included.
type slots struct {
	limit, taken int // limit 0: there is no bound
}

func (g *slots) room(time.Duration) int {
	if g.limit == 0 {
		return unlimited
	}
	return max(0, g.limit-g.taken)
}

func (g *slots) started(time.Duration, *attempt) bool {
	g.taken++
	return false
}

func (g *slots) ended(*attempt) { g.taken-- }
