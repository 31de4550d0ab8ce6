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

// CuratorMaxRetries is the limit that Curator's ExponentialBackoffRetry pins its own to, with a line in the log.
const CuratorMaxRetries = 29

// Curator is ExponentialBackoffRetry and BoundedExponentialBackoffRetry of curator-client 5.9: base * max(1, r) with r
// an integer uniform in [0, 2^(n+1) - 1], at most MaxSleep.
//
// Quirks: the first wait is always exactly Base, and never is one 0; Base is twice as likely as any other; the cap comes
// after the draw, so that the draws pile up on it; MaxRetries above 29 counts as 29. Asked for a step beyond, the
// original shifts an int out of its range: step 30 throws, 31 waits Base, and so on (Sleep with Compat).
type Curator struct {
	Base       time.Duration // whole milliseconds
	MaxSleep   time.Duration // 0 means none, which is 2^31-1 ms
	MaxRetries int           // 0 or less: no retry
	Compat     bool
}

func (p Curator) limit() time.Duration {
	if p.MaxSleep <= 0 {
		return millis(math.MaxInt32)
	}
	return p.MaxSleep
}

// choices returns how many integers r has at step n.
func (p Curator) choices(n uint32) (uint64, error) {
	if !p.Compat {
		return 1 << min(n+1, 30), nil
	}
	if bound := int32(1) << ((n + 1) & 31); bound > 0 {
		return uint64(bound), nil
	}
	return 0, errors.New("bound must be positive")
}

// Sleep returns the wait of step n whether or not the retries are used up: the original's getSleepTimeMs.
func (p Curator) Sleep(n uint32, src rand.Source) (time.Duration, error) {
	choices, err := p.choices(n)
	if err != nil {
		return 0, err
	}
	return p.wait(below(src, choices)), nil
}

func (p Curator) wait(r uint64) time.Duration {
	return min(time.Duration(times(int64(max(p.Base, 0)), int64(max(r, 1)))), p.limit())
}

// Retries returns how many retries are granted.
func (p Curator) Retries() int { return min(max(p.MaxRetries, 0), CuratorMaxRetries) }

// Next implements backoff.Policy.
func (p Curator) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if int64(s.N) >= int64(p.Retries()) {
		return 0, s, false
	}
	d, err := p.Sleep(s.N, src)
	if err != nil {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder; past the last retry it tells what Sleep gives.
func (p Curator) Bounds(n int) (lowest, mean, highest time.Duration) {
	choices, err := p.choices(step(n))
	if err != nil {
		return 0, 0, 0
	}
	base, limit := float64(max(p.Base, 0)), float64(p.limit())
	if base == 0 {
		return 0, 0, 0
	}
	// r = 0 counts as 1; from kept+1 on all are cut to the limit.
	count := float64(choices)
	kept := math.Min(math.Floor(limit/base), count-1)
	sum := math.Min(base, limit) + base*kept*(kept+1)/2 + limit*(count-1-kept)
	lowest, highest = p.wait(1), p.wait(choices-1)
	return lowest, min(max(time.Duration(javaLong(sum/count)), lowest), highest), highest
}

// Validate implements backoff.Validator: the original takes everything.
func (p Curator) Validate() error { return nil }

// CuratorFixed is RetryNTimes, RetryOneTime (MaxRetries 1) and RetryForever of Curator: the same wait each time.
type CuratorFixed struct {
	Sleep      time.Duration
	MaxRetries int  // retries
	Forever    bool // RetryForever: MaxRetries does not count, and Sleep has to be above 0
}

// Next implements backoff.Policy.
func (p CuratorFixed) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil || !p.Forever && int64(s.N) >= int64(p.MaxRetries) {
		return 0, s, false
	}
	d := max(p.Sleep, 0)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p CuratorFixed) Bounds(n int) (lowest, mean, highest time.Duration) {
	d, _, _ := p.Next(backoff.State{N: step(n)}, nil)
	return d, d, d
}

// Validate implements backoff.Validator.
func (p CuratorFixed) Validate() error {
	if p.Forever && p.Sleep <= 0 {
		return fmt.Errorf("sleep %v: want above 0 for ever", p.Sleep)
	}
	return nil
}

// CuratorUntilElapsed is RetryUntilElapsed of Curator: the same wait until MaxElapsed.
//
// Quirk: it waits first and refuses afterwards, by an elapsed time taken before the wait, so that it overshoots by a
// wait that nobody uses. Next, for which the waits are the elapsed time, leaves that one out; Decide tells of it.
type CuratorUntilElapsed struct{ MaxElapsed, Sleep time.Duration }

// Decide returns whether to retry after n retries with elapsed gone, and what the original sleeps before it answers.
func (p CuratorUntilElapsed) Decide(n uint32, elapsed time.Duration) (retry bool, slept time.Duration, sleeps int) {
	if n >= math.MaxInt32 {
		return false, 0, 0
	}
	return elapsed < p.MaxElapsed, max(p.Sleep, 0), 1
}

// Next implements backoff.Policy.
func (p CuratorUntilElapsed) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	retry, d, _ := p.Decide(s.N, s.Slept)
	if !retry {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder; it knows no elapsed time.
func (p CuratorUntilElapsed) Bounds(int) (lowest, mean, highest time.Duration) {
	d := max(p.Sleep, 0)
	return d, d, d
}

// Validate implements backoff.Validator: the original takes everything.
func (p CuratorUntilElapsed) Validate() error { return nil }

// curatorRetryable are the KeeperException codes that Curator's policies retry.
var curatorRetryable = []string{"CONNECTIONLOSS", "OPERATIONTIMEOUT", "SESSIONMOVED", "SESSIONEXPIRED"}

// CuratorRetryable reports whether Curator's policies retry a KeeperException of that code (CONNECTIONLOSS, ...).
// sessionFailed asks SessionFailedRetryPolicy, which refuses SESSIONEXPIRED. For UNKNOWNSESSION ZooKeeper has a code
// but no exception.
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
