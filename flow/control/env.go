//penstock:pure

package control

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// env is shared by the parts of a machine: its configuration, the time and the random generator.
type env struct {
	cfg Config
	now time.Duration
	src *rand.PCG
	rnd *rand.Rand
}

// jitter returns d times a random number between from and to.
func (e *env) jitter(d time.Duration, from, to float64) time.Duration {
	return time.Duration(float64(d) * (from + (to-from)*e.rnd.Float64()))
}

// wait returns the random time until the next probe in an outage, drawn from policy, or from the
// default schedule if policy is nil. The parameter most is an upper bound; 0 means no extra bound.
func (e *env) wait(o *outage, policy backoff.Policy, most time.Duration) time.Duration {
	if !o.active {
		*o = outage{active: true, since: e.now}
	}
	if policy != nil {
		d, next, ok := policy.Next(o.state, e.src)
		if !ok {
			d = o.state.Prev
		}
		o.state = next
		if most > 0 {
			d = min(d, most)
		}
		return min(max(d, 0), maxWait)
	}
	limit := maxProbeWait
	if most > 0 {
		limit = most
	}
	if e.now-o.since < earlyFor {
		limit = min(limit, maxProbeWaitEarly)
	}
	d := min(probeBase<<min(o.k, 10), limit)
	o.k++
	return e.jitter(d, 0.5, 1)
}

// outage is the schedule of the probes during an outage. By default, the intervals are 0.5 s * 2^k
// with equal jitter, at most 1 s in the first minute and 30 s later.
type outage struct {
	active bool
	since  time.Duration
	k      uint
	state  backoff.State
}
