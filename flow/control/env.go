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

// draw returns the next wait of a policy, and updates its state s. If the policy gives up, its last
// wait is repeated.
func (e *env) draw(p backoff.Policy, s *backoff.State) time.Duration {
	d, next, ok := p.Next(*s, e.src)
	if !ok {
		d = s.Prev
	}
	*s = next
	return min(max(d, 0), maxWait)
}

// outage is the schedule of the probes during an outage. By default, the intervals are 0.5 s * 2^k
// with equal jitter, at most 1 s in the first minute and 30 s later.
type outage struct {
	active bool
	doubling
	state backoff.State
}

// doubling is a schedule of intervals that double, beginning with probeBase.
type doubling struct {
	since time.Duration // begin of the schedule
	k     uint          // intervals so far
}

// next returns the next interval. It is at most early in the first minute, and at most late later.
func (d *doubling) next(now, early, late time.Duration) time.Duration {
	d.k++
	return min(probeBase<<min(d.k-1, 10), longestWait(now-d.since, early, late))
}

// longestWait returns the longest wait in an outage, which is shorter in its first minute.
func longestWait(outage, early, late time.Duration) time.Duration {
	if outage < earlyFor {
		return min(early, late)
	}
	return late
}
