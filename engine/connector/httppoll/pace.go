//penstock:pure

package httppoll

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// maxEmptyPages bounds the consecutive pages without new records that are requested without a
// pause. APIs with filters may return such pages. Some APIs return a new cursor with each response,
// even if there is nothing new. Without a bound, the source would send requests to them without any
// pause.
const maxEmptyPages = 16

// pace determines when the next request is due. Its times are relative to the start of the reader.
type pace struct {
	adaptive backoff.Adaptive
	retry    backoff.Policy
	random   rand.Source // nil means the global random source

	interval   time.Duration // the interval before the next regular request
	due        time.Duration
	notBefore  time.Duration // the server allows no request before this time
	emptyPages int

	failures backoff.State
	failing  bool
	since    time.Duration // time of the first failure since the last success
}

// next returns the time at which the next request is due.
func (p *pace) next() time.Duration { return max(p.due, p.notBefore) }

// demand notes that the server allows no request before the time now+wait.
func (p *pace) demand(now, wait time.Duration) { p.notBefore = max(p.notBefore, now+wait) }

// page updates p after a successful request at the time now. It returns true if the next request
// must wait for the interval. news means that the page had new records, and turned means that
// another page follows. If one follows, the next request is due at once, unless maxEmptyPages
// consecutive pages had no new records.
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

// jitter is the maximum random deviation of a wait from the interval, as a fraction of the
// interval.
const jitter = 0.1

// failed updates p after a failed request at the time now. It returns the wait until the next
// request, and the time since the first failure after the last success.
func (p *pace) failed(now time.Duration) (wait, failing time.Duration) {
	if !p.failing {
		p.failing, p.since = true, now
	}
	wait, p.failures, _ = p.retry.Next(p.failures, p.random)
	p.due = now + wait
	return max(wait, p.notBefore-now), now - p.since
}
