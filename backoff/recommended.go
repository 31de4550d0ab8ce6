//penstock:pure

package backoff

import (
	"fmt"
	"math"
	"time"
)

// Recommended is a policy for many clients that contend for one resource: full jitter over an
// interval that grows with the square of the step. At step n the interval is latency/2 * (n+2)^2,
// at most max: 2, 4.5, 8, 12.5, ... latencies of one attempt. max 0 means no cap but the largest
// Duration.
//
// Why, as measured with the set-up of the AWS Architecture Blog (clients that read and write one
// version, 100 trials):
//
//   - Jitter decides: without it the same waits take 7 to 14 times as long. Full jitter costs as
//     many calls as equal jitter and is a quarter to a third faster.
//   - The wait has to be in proportion to the latency of an attempt. A base of one latency saves 30
//     % of the calls of a base of an eighth of it, and costs 2 % of the time.
//   - A square grows fast enough to part a crowd (any growth above linear is stable, Hastad,
//     Leighton and Rogoff 1996) and does not overshoot as doubling does. For 50 to 190 clients it
//     beats full jitter over a doubling interval in time (2 to 15 %) and in calls (20 to 30 %). For
//     10 clients it takes somewhat longer than doubling.
//
// Under a load that never ends, rather than a crowd that has to be served once, doubling keeps more
// throughput: there, and where the latency is unknown, use Exponential(...).Full().
func Recommended(latency, max time.Duration) Ladder {
	return newLadder(recommendedGrowth(latency), jitter{mode: full}, max)
}

type recommendedGrowth time.Duration

func (g recommendedGrowth) interval(n uint32) (time.Duration, bool) {
	latency, k := max(time.Duration(g), 0), uint64(n)+2
	if k&1 == 0 {
		return times(times(latency, k/2), k), true
	}
	odd := times(times(latency, k), k) // halved last, so that no half nanosecond is lost on the way
	if odd == math.MaxInt64 {
		return odd, true
	}
	return odd / 2, true
}

func (g recommendedGrowth) settled(n uint32) bool {
	d, _ := g.interval(n)
	return g <= 0 || d == math.MaxInt64
}

func (g recommendedGrowth) validate(limit time.Duration) error {
	if g < 0 {
		return fmt.Errorf("latency %v is negative", time.Duration(g))
	}
	return checkBase("latency", time.Duration(g), limit)
}

func (g recommendedGrowth) spec() string {
	return "recommended latency=" + time.Duration(g).String()
}
