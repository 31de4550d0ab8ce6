//penstock:pure

package rate

import (
	"math"
	"time"
)

// GCRA is the generic cell rate algorithm of ITU-T I.371. It allows the same events as a [Bucket],
// but its state is a single Duration. Use it for a table with the state of many users.
//
//	limit := rate.GCRA{Interval: 100 * time.Millisecond, Burst: 5}
//	state[user], wait = limit.Take(state[user], now, 1)
//
// The state is the time at which the full burst is available again. Zero is the state of a user
// without events. All times are counted from an origin that the caller chooses, and must not
// decrease.
type GCRA struct {
	Interval time.Duration // between two events in the long run. Zero or less means no limit.
	Burst    int           // events at once after a pause. Values below 1 count as 1.
}

// Take returns the state after n events and a wait of zero if the events are allowed now.
// Otherwise, it returns the unchanged state and the time until the events are allowed. If n exceeds
// the burst, they are never allowed, and this time is the longest Duration. If n is below 1, they
// are always allowed.
func (g GCRA) Take(state, now time.Duration, n int) (time.Duration, time.Duration) {
	if g.Interval <= 0 || n < 1 {
		return state, 0
	}
	burst := max(g.Burst, 1)
	if n > burst {
		return state, math.MaxInt64
	}
	after := plus(max(state, now), times(g.Interval, n))
	if wait := after - times(g.Interval, burst) - now; wait > 0 {
		return state, wait
	}
	return after, 0
}

// times returns d*n, at most the longest Duration. Both are above zero.
func times(d time.Duration, n int) time.Duration {
	if int64(n) > math.MaxInt64/int64(d) {
		return math.MaxInt64
	}
	return d * time.Duration(n)
}

// plus returns a+b, at most the longest Duration. b is above zero.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
