//penstock:pure

package compat

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Jodis is BoundedExponentialBackoffRetryUntilElapsed of jodis 0.5: base * max(1, r), at most
// MaxSleep. r is an integer uniform in [0, 2^min(30, n+1) - 1]. The last sleep is cut to end
// exactly at MaxElapsed. [JodisDefaults] has the settings of RoundRobinJedisPool.
//
// Quirks: The first wait has no jitter: it is Base, or MaxSleep if that is shorter. The cap comes
// after the draw, so that waits pile up on it. Without a limit of time, an elapsed time below 0
// makes the remaining time wrap, so that the wait is negative (Compat only).
type Jodis struct {
	Base       time.Duration // whole milliseconds
	MaxSleep   time.Duration // 0 means that every wait is 0
	MaxElapsed time.Duration // below 0 means no limit, 0 no retry
	Compat     bool
}

// JodisDefaults returns the settings of RoundRobinJedisPool: 100 ms, at most 30 s, no limit of
// time.
func JodisDefaults() Jodis {
	return Jodis{Base: 100 * time.Millisecond, MaxSleep: 30 * time.Second, MaxElapsed: -1}
}

// Decide returns the wait after retryCount retries. The parameter elapsed is the time since the
// first attempt. Decide returns false if elapsed is MaxElapsed or more. The original then does not
// sleep. With Compat it also returns false for a retryCount that makes the original throw (-2,
// -34, ...).
func (p Jodis) Decide(retryCount int, elapsed time.Duration,
	src rand.Source) (time.Duration, bool) {
	limit := int64(math.MaxInt64)
	if p.MaxElapsed >= 0 {
		limit = javaMillis(p.MaxElapsed)
	}
	spent := javaMillis(elapsed)
	if spent >= limit {
		return 0, false
	}
	choices, err := p.choices(retryCount)
	if err != nil {
		return 0, false
	}
	if !p.Compat {
		spent = max(spent, 0)
	}
	return clamp(min(curatorWait(p.Base, p.MaxSleep, below(src, choices)), millis(limit-spent)),
		p.Compat), true
}

func (p Jodis) choices(retryCount int) (uint64, error) {
	if !p.Compat {
		return 1 << min(uint64(max(retryCount, 0))+1, 30), nil
	}
	return javaBound(1 << (min(30, int32(retryCount)+1) & 31))
}

// Next implements backoff.Policy. It takes the sum of the waits as the elapsed time.
func (p Jodis) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d, ok := p.Decide(count(s.N), max(s.Slept, 0), src)
	if !ok {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder. The elapsed time is unknown. So if MaxElapsed is above 0, the
// lowest wait is 0, and the mean and the highest are at most MaxElapsed.
func (p Jodis) Bounds(n int) (lowest, mean, highest time.Duration) {
	choices, err := p.choices(count(step(n)))
	if err != nil || p.MaxElapsed == 0 {
		return 0, 0, 0
	}
	lowest, mean, highest = curatorBounds(p.Base, p.MaxSleep, choices)
	if p.MaxElapsed > 0 {
		lowest, mean, highest = min(lowest, 0), min(mean, p.MaxElapsed), min(highest, p.MaxElapsed)
	}
	return clamp(lowest, p.Compat), clamp(mean, p.Compat), clamp(highest, p.Compat)
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p Jodis) Validate() error { return nil }
