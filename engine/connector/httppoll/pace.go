//penstock:pure

package httppoll

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// maxEmptyTurns is the number of pages without records, one behind the other, that are requested
// without a pause. APIs that filter return such pages; others change their cursor with each
// request.
const maxEmptyTurns = 16

// pace decides when the next request is due. Times are those of the reader's clock.
type pace struct {
	adaptive backoff.Adaptive
	retry    backoff.Policy
	random   rand.Source // nil means the global one

	interval   time.Duration // the last one
	due        time.Duration
	hold       time.Duration // the server wants no request before
	emptyTurns int

	failures backoff.State
	failing  bool
	since    time.Duration // of failing
}

// next returns when the next request is due.
func (p *pace) next() time.Duration { return max(p.due, p.hold) }

// demand takes how long the server wants no request.
func (p *pace) demand(now, wait time.Duration) { p.hold = max(p.hold, now+wait) }

// page takes the result of a request: whether it had new records, and whether another page follows.
// It reports whether the feed is read to its end.
func (p *pace) page(now time.Duration, news, turned bool) (end bool) {
	p.failures, p.failing = backoff.State{}, false
	switch {
	case turned && news:
		p.emptyTurns, p.interval = 0, 0
	case turned:
		p.emptyTurns++
	default:
		p.emptyTurns = 0
	}
	if turned && p.emptyTurns < maxEmptyTurns {
		p.due = now
		return false
	}
	p.interval = p.adaptive.Next(p.interval, news)
	wait, _, _ := backoff.Fixed(p.interval).Proportional(jitter).Next(backoff.State{}, p.random)
	p.due = now + wait
	return true
}

// jitter is the share by which a wait is longer or shorter than the interval.
const jitter = 0.1

// failed takes a request without a result. It returns the wait, and for how long requests have
// failed.
func (p *pace) failed(now time.Duration) (wait, failing time.Duration) {
	if !p.failing {
		p.failing, p.since = true, now
	}
	wait, p.failures, _ = p.retry.Next(p.failures, p.random)
	p.due = now + wait
	return max(wait, p.hold-now), now - p.since
}
