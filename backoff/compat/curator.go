//penstock:pure

package compat

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// CuratorMaxSleep is the cap that the original uses if it is created without one: 2^31-1 ms.
const CuratorMaxSleep = math.MaxInt32 * time.Millisecond

// CuratorMaxRetries is the highest MaxRetries of Curator's ExponentialBackoffRetry, which reduces a
// higher value to this one and logs the reduction.
const CuratorMaxRetries = 29

// Curator is ExponentialBackoffRetry and BoundedExponentialBackoffRetry of curator-client 5.9: base
// * max(1, r), at most MaxSleep. r is an integer uniform in [0, 2^(n+1) - 1].
//
// Quirks: The first wait has no jitter: it is Base, or MaxSleep if that is shorter. No wait is 0,
// unless Base or MaxSleep is. Base is twice as likely as any other wait below the cap. The cap
// comes after the draw, so waits pile up on it. MaxRetries above 29 counts as 29. For higher steps
// the original shifts an int out of its range: step 30 throws, step 31 waits Base, and step 32
// waits as step 0 does. With Compat, Sleep does the same.
type Curator struct {
	Base       time.Duration // whole milliseconds
	MaxSleep   time.Duration // CuratorMaxSleep if the original is created without a cap
	MaxRetries int           // 0 or less means no retry
	Compat     bool          // whether negative settings give negative waits, as in the original
}

// choices returns the number of possible values of r, the random factor of the wait after
// retryCount retries.
func (p Curator) choices(retryCount int) (uint64, error) {
	if !p.Compat {
		return 1 << min(uint64(max(retryCount, 0))+1, 30), nil
	}
	return javaBound(1 << ((uint32(retryCount) + 1) & 31))
}

// javaBound returns bound, or the error of Java's Random.nextInt(bound) if bound is not positive.
func javaBound(bound int32) (uint64, error) {
	if bound <= 0 {
		return 0, errors.New("bound must be positive")
	}
	return uint64(bound), nil
}

// Sleep returns the wait after retryCount retries, like the original's getSleepTimeMs. It ignores
// MaxRetries. With Compat it returns an error for a retryCount at which the original's shift makes
// it throw (30, 62, -2, ...).
func (p Curator) Sleep(retryCount int, src rand.Source) (time.Duration, error) {
	choices, err := p.choices(retryCount)
	if err != nil {
		return 0, err
	}
	return p.wait(below(src, choices)), nil
}

func (p Curator) wait(r uint64) time.Duration {
	return clamp(curatorWait(p.Base, p.MaxSleep, r), p.Compat)
}

// curatorWait returns base * max(1, r), at most limit. r must be below 2^31.
func curatorWait(base, limit time.Duration, r uint64) time.Duration {
	return min(scaled(int64(max(r, 1)), base), limit)
}

// Retries returns the number of retries after which Next gives up: MaxRetries, limited to the range
// from 0 to [CuratorMaxRetries].
func (p Curator) Retries() int { return min(max(p.MaxRetries, 0), CuratorMaxRetries) }

// Next implements backoff.Policy.
func (p Curator) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if int64(s.N) >= int64(p.Retries()) {
		return 0, s, false
	}
	d, err := p.Sleep(count(s.N), src)
	if err != nil {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder. After the last retry it returns the bounds of Sleep.
func (p Curator) Bounds(n int) (lowest, mean, highest time.Duration) {
	choices, err := p.choices(count(step(n)))
	if err != nil {
		return 0, 0, 0
	}
	lowest, mean, highest = curatorBounds(p.Base, p.MaxSleep, choices)
	return clamp(lowest, p.Compat), clamp(mean, p.Compat), clamp(highest, p.Compat)
}

// curatorBounds are the bounds of curatorWait with r uniform in [0, choices).
func curatorBounds(base, limit time.Duration,
	choices uint64) (lowest, mean, highest time.Duration) {
	first, last := curatorWait(base, limit, 1), curatorWait(base, limit, choices-1)
	if base <= 0 { // the cap is above all waits or below none
		middle := time.Duration(javaLong((float64(first) + float64(last)) / 2))
		return ordered(first, middle, last)
	}
	// A draw of r = 0 counts as 1. For draws above kept, the wait is cut to the limit.
	count := float64(choices)
	kept := max(math.Min(math.Floor(float64(limit)/float64(base)), count-1), 0)
	sum := float64(first) + float64(base)*kept*(kept+1)/2 + float64(limit)*(count-1-kept)
	return ordered(first, time.Duration(javaLong(sum/count)), last)
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p Curator) Validate() error { return nil }

// CuratorFixed is RetryNTimes, RetryOneTime (MaxRetries 1) and RetryForever of Curator: the same
// wait each time.
type CuratorFixed struct {
	Sleep      time.Duration
	MaxRetries int  // maximum number of retries
	Forever    bool // as in RetryForever; MaxRetries is ignored, and Sleep must be above 0
	Compat     bool // whether a negative Sleep gives negative waits, as in the original
}

// Decide reports whether the original retries again after retryCount retries, and returns its sleep
// before that retry. A negative retryCount is accepted.
func (p CuratorFixed) Decide(retryCount int) (slept time.Duration, retry bool) {
	if p.Validate() != nil || !p.Forever && retryCount >= p.MaxRetries {
		return 0, false
	}
	return clamp(p.Sleep, p.Compat), true
}

// Next implements backoff.Policy.
func (p CuratorFixed) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	d, ok := p.Decide(count(s.N))
	if !ok {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p CuratorFixed) Bounds(n int) (lowest, mean, highest time.Duration) {
	d, _ := p.Decide(count(step(n)))
	return d, d, d
}

// Validate implements backoff.Validator.
func (p CuratorFixed) Validate() error {
	if p.Forever && p.Sleep <= 0 {
		return fmt.Errorf("sleep %v: want above 0 for ever", p.Sleep)
	}
	return nil
}

// CuratorUntilElapsed is RetryUntilElapsed of Curator: the same wait each time, until MaxElapsed
// has passed since the first attempt.
//
// Quirk: after each failure the original measures the elapsed time, waits, and only then refuses
// to retry if the measured time was too long. So its last wait is useless. Next takes the sum of
// the waits as the elapsed time, and omits the useless wait. Decide returns that wait, too.
type CuratorUntilElapsed struct {
	MaxElapsed, Sleep time.Duration
	Compat            bool // whether a negative Sleep gives negative waits, as in the original
}

// Decide returns the decision of the original after retryCount retries. The parameter elapsed is
// the time since the first attempt. The original sleeps once before it decides, even if it then
// does not retry: slept is the duration of this sleep, and sleeps, the number of sleeps, is 1. But
// if retryCount is the largest Java int, or more, the original does not sleep: both are then 0.
func (p CuratorUntilElapsed) Decide(
	retryCount int, elapsed time.Duration,
) (retry bool, slept time.Duration, sleeps int) {
	if retryCount >= math.MaxInt32 {
		return false, 0, 0
	}
	return elapsed < p.MaxElapsed, clamp(p.Sleep, p.Compat), 1
}

// Next implements backoff.Policy.
func (p CuratorUntilElapsed) Next(s backoff.State,
	_ rand.Source) (time.Duration, backoff.State, bool) {
	retry, d, _ := p.Decide(count(s.N), s.Slept)
	if !retry {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder. It ignores MaxElapsed, because the elapsed time is unknown.
func (p CuratorUntilElapsed) Bounds(int) (lowest, mean, highest time.Duration) {
	d := clamp(p.Sleep, p.Compat)
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p CuratorUntilElapsed) Validate() error { return nil }

// curatorRetryable are the KeeperException codes that Curator's policies retry.
var curatorRetryable = []string{"CONNECTIONLOSS", "OPERATIONTIMEOUT", "SESSIONMOVED",
	"SESSIONEXPIRED"}

// CuratorRetryable reports whether Curator's policies retry a KeeperException with the given code
// (CONNECTIONLOSS, ...). If sessionFailed is true, it reports the same for
// SessionFailedRetryPolicy, which does not retry SESSIONEXPIRED. For UNKNOWNSESSION it returns an
// error, because ZooKeeper has this code but no exception for it.
func CuratorRetryable(code string, sessionFailed bool) (bool, error) {
	if code == "UNKNOWNSESSION" {
		//lint:ignore ST1005 the original's text
		return false, errors.New("Invalid exception code:-12")
	}
	if sessionFailed && code == "SESSIONEXPIRED" {
		return false, nil
	}
	return slices.Contains(curatorRetryable, code), nil
}
