//penstock:pure

package retry

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// plan is the state of a call from which the next wait, or the reason to stop, is computed.
type plan struct {
	row       int           // attempts that have ended since the start or the last progress
	failovers int           // number of failovers so far
	refreshed bool          // the previous failure led to a refresh
	state     backoff.State // state of the policy
	failing   bool
	failedAt  time.Duration // time of the first failure after the last success or progress
}

// step is the input of [plan.decide]. It describes an attempt that has ended without success, or
// the wait before a first poll.
type step struct {
	err        error
	action     Action
	after      time.Duration // the hint: 0 none, negative no wait
	now        time.Duration // time since the start; only if a limit of time is set
	contextErr error         // why the caller's context has ended; nil while it lives
	suppressed bool          // an outer retry will try again
	notReady   bool          // the probe of a poll returned ErrNotReady, which is no failure
	patient    bool          // the call continues even if suppressed is set
}

// decide returns the wait before the next attempt, or the reason to stop. It first makes the checks
// that do not depend on the wait. If one of them stops the call, the policy draws no random number.
func (p *plan) decide(o *Options, s *step) (wait time.Duration, stop error) {
	progress := s.action == Progress
	if progress || s.notReady {
		p.failing = false
	}
	if progress {
		p.state, p.row = backoff.State{}, min(p.row, 1)
	}
	if !p.failing && !s.notReady {
		p.failing, p.failedAt = true, s.now
	}
	switch {
	case s.action == Fail:
		return 0, ErrPermanent
	case o.exhausted(p.row):
		return 0, ErrExhausted
	case s.contextErr != nil:
		return 0, s.contextErr
	}
	if o.repeatable != nil {
		if stop = o.repeatable(); stop != nil {
			return 0, stop
		}
	}
	if s.suppressed && !s.patient {
		return 0, ErrNested
	}
	if wait, stop = p.wait(o, s); stop != nil {
		return 0, stop
	}
	if o.MaxElapsed > 0 && wait > o.MaxElapsed-s.now {
		return 0, ErrElapsed
	}
	if o.MaxFailing > 0 && p.failing && wait > o.MaxFailing-(s.now-p.failedAt) {
		return 0, ErrElapsed
	}
	return wait, nil
}

// wait returns the wait of the policy, or the hint, limited by MaxHint.
func (p *plan) wait(o *Options, s *step) (time.Duration, error) {
	before := p.state
	wait, next, ok := o.policy().Next(before, o.Rand)
	if !ok {
		return 0, ErrExhausted
	}
	wait, p.state = max(wait, 0), next
	refreshed := s.action == Refresh && !p.refreshed
	p.refreshed = s.action == Refresh
	switched := false
	if s.action == Failover {
		p.failovers++
		switched = o.Targets > 1 && p.failovers%o.Targets != 0
	}
	if refreshed || switched {
		wait, p.state = 0, before // without a wait, the policy does not advance
	}
	if s.after == 0 || switched {
		return wait, nil
	}
	hint, limit := max(s.after, 0), cmp.Or(o.MaxHint, defaultMaxHint)
	if hint > limit {
		if !o.ClampHint {
			return 0, ErrHint
		}
		hint = limit
	}
	if o.ExactHint {
		if endless(o.policy()) { // otherwise the policy counts the attempts
			p.state = backoff.State{}
		}
		return hint, nil
	}
	if hint < wait {
		return wait, nil
	}
	return addSaturating(hint, drawBelow(o.source(), hint/10)), nil
}

// drawBelow returns a random duration in [0, n], or 0 if n is negative. The probabilities of two
// values differ by at most 2^-64.
func drawBelow(src rand.Source, n time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	high, _ := bits.Mul64(src.Uint64(), uint64(n)+1)
	return time.Duration(high)
}

// addSaturating returns a + b or the largest duration.
func addSaturating(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
