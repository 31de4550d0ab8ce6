//penstock:pure

package httppoll

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// maxEmptyPages is the number of consecutive pages without records that are requested without a
// pause. APIs with filters return such pages. A limit is needed because some APIs change their
// cursor with each request, and so always have another page.
const maxEmptyPages = 16

// pace determines when the next request is due. Times are relative to the reader's start.
type pace struct {
	adaptive backoff.Adaptive
	retry    backoff.Policy
	random   rand.Source // nil means the global one

	interval   time.Duration // the previous interval
	due        time.Duration
	notBefore  time.Duration // the server allows no request before this time
	emptyPages int

	failures backoff.State
	failing  bool
	since    time.Duration // start of the current run of failures
}

// next returns when the next request is due.
func (p *pace) next() time.Duration { return max(p.due, p.notBefore) }

// demand records that the server allows no request for the time wait.
func (p *pace) demand(now, wait time.Duration) { p.notBefore = max(p.notBefore, now+wait) }

// page records a successful request. news means that the page had new records. turned means that
// another page follows. page reports whether the next request must wait for the interval, because
// the feed was read to its end or had too many empty pages.
func (p *pace) page(now time.Duration, news, turned bool) (end bool) {
	p.failures, p.failing = backoff.State{}, false
	switch {
	case turned && news:
		p.emptyPages, p.interval = 0, 0
	case turned:
		p.emptyPages++
	default:
		p.emptyPages = 0
	}
	if turned && p.emptyPages < maxEmptyPages {
		p.due = now
		return false
	}
	p.interval = p.adaptive.Next(p.interval, news)
	wait, _, _ := backoff.Fixed(p.interval).Proportional(jitter).Next(backoff.State{}, p.random)
	p.due = now + wait
	return true
}

// jitter is the maximum relative deviation of a wait from the interval.
const jitter = 0.1

// failed records a failed request. It returns the wait until the next one, and the time since the
// first failure.
func (p *pace) failed(now time.Duration) (wait, failing time.Duration) {
	if !p.failing {
		p.failing, p.since = true, now
	}
	wait, p.failures, _ = p.retry.Next(p.failures, p.random)
	p.due = now + wait
	return max(wait, p.notBefore-now), now - p.since
}
