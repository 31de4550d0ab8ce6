//penstock:pure

package backoff

import (
	"fmt"
	"math"
	"time"
)

// Recommended is a policy for many clients that contend for one resource: full jitter over an
// interval that grows with the square of the step. At step n the interval is latency/2 * (n+2)^2,
// at most max. Example: with a latency of 100 ms, the intervals are 200, 450, 800 and 1250 ms.
// latency is the duration of one attempt. A max of 0 means no cap but the largest Duration.
//
// The reasons, as measured with the setup of the AWS Architecture Blog (each client reads one
// record, and writes it if its version is still the same; 100 trials):
//
//   - Jitter matters most: without it, the time until all clients have succeeded is 7 to 14 times
//     as long. Full jitter costs as many calls as equal jitter and is a quarter to a third faster.
//   - The wait has to be proportional to the latency of an attempt. The AWS article uses full
//     jitter over a doubling interval, which begins at an eighth of the latency. If the interval
//     begins at one latency instead, the clients make 30 % fewer calls and take 2 % more time.
//   - A square grows fast enough to spread out a crowd (any growth above linear is stable, Hastad,
//     Leighton and Rogoff 1996) and does not overshoot as doubling does. For 50 to 190 clients it
//     beats full jitter over a doubling interval in time (2 to 15 %) and in calls (20 to 30 %). For
//     10 clients it takes somewhat longer than doubling.
//
// If new clients keep arriving, doubling has a higher throughput than a square. In that case, or if
// the latency is unknown, use Exponential(...).Full().
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

func (g recommendedGrowth) constantFrom(n uint32) bool {
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
