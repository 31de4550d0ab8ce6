//penstock:pure

package retry

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// HintMode says how a server's hint and the policy's wait come together.
type HintMode uint8

// How a hint is taken.
const (
	// AtLeast waits for the longer of both, and up to a tenth longer where it is the hint, so that those who got the
	// same hint do not come back at once.
	AtLeast HintMode = iota
	// Instead waits exactly as long as the hint says, also where that is shorter, and starts the policy anew, as
	// cenkalti/backoff and gRPC's pushback do.
	Instead
)

// DefaultHint is the longest hint that is followed where HintLimit names none.
const DefaultHint = 5 * time.Minute

// HintLimit bounds what a server (Retry-After, [After]) may ask for.
type HintLimit struct {
	// Max is the longest hint that is followed; 0 means DefaultHint, negative no limit. A longer one stops the retry
	// with ErrHint and the hint in Error.After, so that a durable queue can come back in time.
	Max time.Duration
	// Clamp waits for Max instead of stopping: the server gets asked earlier than it wanted.
	Clamp bool
	// Mode says how hint and policy come together.
	Mode HintMode
}

// plan is what one sequence has done so far, as far as decisions need it.
type plan struct {
	row       int           // attempts that have ended since the start or the last progress
	moves     int           // failovers
	refreshed bool          // the failure before this one was answered by a refresh
	state     backoff.State // of the policy
	failing   bool
	failedAt  time.Duration // the first failure after the last success, since the start
}

// step is one failure and what is known when it has to be decided about.
type step struct {
	Decision
	now     time.Duration // since the start; only where a limit of time is set
	dead    error         // why the caller's context has ended; nil while it lives
	inside  bool          // an outer retry will try again
	waited  bool          // no failure: the answer to a poll was "not yet"
	patient bool          // goes on whatever an outer retry would do
}

// decide returns how long to wait before the next attempt, or why there is none. Cheap reasons come first; nothing is
// drawn from the policy for a sequence that has ended.
func (p *plan) decide(r *Retrier, s step) (wait time.Duration, stop error) {
	if s.Reset || s.waited {
		p.failing = false
	}
	if s.Reset {
		p.state, p.row = backoff.State{}, min(p.row, 1)
	}
	if !p.failing && !s.waited {
		p.failing, p.failedAt = true, s.now
	}
	policy := r.Policy
	if policy == nil {
		policy = defaultPolicy
	}
	switch {
	case s.Action == Fail:
		return 0, ErrPermanent
	case p.row >= r.limit() && (r.MaxAttempts != 0 || r.Policy == nil || endless(policy)):
		return 0, ErrExhausted
	case s.dead != nil:
		return 0, s.dead
	case s.inside && !s.patient:
		return 0, ErrNested
	}
	if wait, stop = p.wait(r, policy, s.Decision); stop != nil {
		return 0, stop
	}
	if r.MaxElapsed > 0 && wait > r.MaxElapsed-s.now {
		return 0, ErrElapsed
	}
	if r.MaxFailing > 0 && p.failing && wait > r.MaxFailing-(s.now-p.failedAt) {
		return 0, ErrFailing
	}
	return wait, nil
}

// wait asks the policy and bounds the hint.
func (p *plan) wait(r *Retrier, policy backoff.Policy, d Decision) (time.Duration, error) {
	before := p.state
	wait, next, ok := policy.Next(before, r.Rand)
	if !ok {
		return 0, ErrExhausted
	}
	wait, p.state = max(wait, 0), next
	refreshed := d.Action == Refresh && !p.refreshed
	p.refreshed = d.Action == Refresh
	moved := false
	if d.Action == Failover {
		p.moves++
		moved = r.Targets > 1 && p.moves%r.Targets != 0
	}
	if refreshed || moved {
		wait, p.state = 0, before // a change that has cost no wait: the policy is not a step further
	}
	if d.After == 0 || moved {
		return wait, nil
	}
	hint, limit := max(d.After, 0), r.Hint.Max
	if limit == 0 {
		limit = DefaultHint
	}
	if limit > 0 && hint > limit {
		if !r.Hint.Clamp {
			return 0, ErrHint
		}
		hint = limit
	}
	if r.Hint.Mode == Instead {
		p.state = backoff.State{}
		return hint, nil
	}
	if hint < wait {
		return wait, nil
	}
	return later(hint, below(r.source(), hint/10)), nil
}

// limit is the number of attempts that may be made in a row.
func (r *Retrier) limit() int {
	switch {
	case r.MaxAttempts < 0:
		return math.MaxInt
	case r.MaxAttempts == 0:
		return DefaultAttempts
	}
	return r.MaxAttempts
}

// endless reports whether p never gives up by itself, asked at a place that no sequence reaches.
func endless(p backoff.Policy) bool {
	_, _, ok := p.Next(backoff.State{N: math.MaxUint32, Step: math.MaxUint32}, zeros{})
	return ok
}

// zeros is a source for questions whose answer does not depend on chance.
type zeros struct{}

// Uint64 implements rand.Source.
func (zeros) Uint64() uint64 { return 0 }

// below draws from [0, n], uniformly up to n / 2^64.
func below(src rand.Source, n time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	high, _ := bits.Mul64(src.Uint64(), uint64(n)+1)
	return time.Duration(high)
}

// later adds without wrapping.
func later(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
