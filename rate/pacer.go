//penstock:pure

package rate

import (
	"math"
	"time"
)

// pacer computes the time at which the next event may happen. Three things can delay an event: the
// limit of the options, a pause that a server asked for, and the rest of a quota that a server has
// stated. It reads no clock: callers pass the time in.
type pacer struct {
	limited  bool // bucket is in use
	bucket   Bucket
	burst    int
	maxPause time.Duration
	resumes  time.Duration // end of the pause
	booked   time.Duration // time of the last reserved event
	quota    quota
}

// longest bounds pauses and windows, so that no sum with the time overflows.
const longest = math.MaxInt64 / 4

// quota is the limit that a server has stated.
type quota struct {
	left   int
	ends   time.Duration // end of this window; zero means that nothing is known
	limit  int           // events allowed in each of the next windows; zero means not known
	window time.Duration
}

// allows reports whether n events fit into the rest of the window. If n exceeds the limit of a
// whole window, the events fit only into an unused window, and the excess is subtracted from the
// next windows. Example: with a limit of 10, 25 events are allowed if 10 are left. The next window
// then allows none, and the one after it 5.
func (q *quota) allows(n int) bool {
	if q.limit > 0 {
		n = min(n, q.limit)
	}
	return q.ends == 0 || q.left >= n
}

// capacity returns the number of events allowed in the windows that begin after from and not after
// to. It returns 0 if the next windows are not known.
func (q *quota) capacity(from, to time.Duration) float64 {
	if q.limit == 0 || q.window <= 0 {
		return 0
	}
	begun := func(t time.Duration) float64 { // windows after this one
		if t < q.ends {
			return 0
		}
		return float64((t-q.ends)/q.window) + 1
	}
	return (begun(to) - begun(from)) * float64(q.limit)
}

// add adds n events to the rest of the window. If n is positive, the sum is at most the limit.
func (q *quota) add(n float64) {
	left := float64(q.left) + n
	if n > 0 && q.limit > 0 {
		left = min(left, float64(q.limit))
	}
	q.left = int(min(max(left, math.MinInt/2), math.MaxInt/2))
}

func newPacer(o Options) *pacer {
	p := &pacer{burst: max(o.Burst, 1), maxPause: min(o.MaxPause, longest)}
	if o.Events > 0 {
		p.limited = true
		p.bucket = NewBucket(o.Events/o.Per.Seconds(), float64(p.burst))
	}
	return p
}

// take reports whether n events may happen now, and counts them if so.
func (p *pacer) take(now time.Duration, n int) bool {
	p.renew(now)
	if now < p.resumes || !p.quota.allows(n) {
		return false
	}
	if p.limited && !p.bucket.Take(now, float64(n)) {
		return false
	}
	if p.quota.ends > 0 {
		p.quota.add(-float64(n))
	}
	return true
}

// reserve counts n events that will happen later, and returns the time until then. The tokens of
// the bucket and the events left in the quota may become negative.
func (p *pacer) reserve(now time.Duration, n int) time.Duration {
	wait := p.wait(now, 0, n)
	if p.limited {
		full := p.bucket.Tokens(now) + p.bucket.rate*p.blocked(now).Seconds() - p.bucket.burst
		p.bucket.Add(now, -float64(n)-max(full, 0)) // the bucket overflows while events are blocked
	}
	at := plus(now, wait)
	if q := &p.quota; q.ends > 0 {
		if c := q.capacity(now, at); c > 0 { // the rest of the earlier windows expires
			q.add(min(float64(q.limit)-c-float64(q.left), 0))
		}
		q.add(-float64(n))
	}
	p.booked = max(p.booked, at)
	return wait
}

// giveBack subtracts n events from the count that were reserved for the time at and have not
// happened. Events that are reserved for a later time keep it, so the tokens and the part of the
// quota that flow in until then are not given back.
func (p *pacer) giveBack(now, at time.Duration, n int) {
	if p.limited {
		later := p.bucket.rate * (p.booked - at).Seconds()
		p.bucket.Add(now, max(float64(n)-later, 0))
	}
	if q := &p.quota; q.ends > 0 {
		q.add(max(float64(n)-q.capacity(at, p.booked), 0))
	}
}

// wait returns the time until n events may happen together. The parameter ahead is the number of
// events that happen before them.
func (p *pacer) wait(now time.Duration, ahead, n int) time.Duration {
	p.renew(now)
	blocked := p.blocked(now)
	wait := blocked
	if p.limited {
		start := plus(now, blocked)
		wait = plus(blocked, p.bucket.Wait(start, float64(ahead)+float64(n)))
	}
	if p.quota.ends > 0 {
		wait = max(wait, p.quota.wait(now, ahead, n))
	}
	return wait
}

// blocked returns the time for which a server allows no event.
func (p *pacer) blocked(now time.Duration) time.Duration {
	if p.quota.ends > 0 {
		return max(p.resumes-now, p.quota.wait(now, 0, 1))
	}
	return max(p.resumes-now, 0)
}

// wait is pacer.wait for the quota alone.
func (q *quota) wait(now time.Duration, ahead, n int) time.Duration {
	windows := q.limit > 0 && q.window > 0 // the next windows are known
	if windows {
		n = min(n, q.limit) // see allows
	}
	switch missing := float64(ahead) + float64(n) - float64(q.left); {
	case missing <= 0:
		return 0
	case windows:
		later := math.Ceil(missing/float64(q.limit)) - 1
		if later >= float64(math.MaxInt64/q.window) {
			return math.MaxInt64
		}
		return plus(q.ends-now, q.window*time.Duration(later))
	}
	return q.ends - now
}

// renew begins the next window of the quota, if the current one has ended.
func (p *pacer) renew(now time.Duration) {
	q := &p.quota
	if q.ends == 0 || now < q.ends {
		return
	}
	if q.limit == 0 || q.window <= 0 {
		*q = quota{}
		return
	}
	q.left = min(q.left, 0) // each window pays a part of the debt
	q.add(q.capacity(q.ends-1, now))
	q.ends += q.window * ((now-q.ends)/q.window + 1)
}

// pauseJitter is the maximum jitter of a pause, as a share of its length. It keeps clients from
// returning at the same time. Jitter only prolongs a pause.
const pauseJitter = 0.1

// observe applies the advice of a server. The parameter chance is a random number from 0 to 1.
func (p *pacer) observe(now time.Duration, a Advice, chance float64) {
	prolong := func(d time.Duration) time.Duration {
		d = min(d, p.maxPause)
		return d + time.Duration(pauseJitter*chance*float64(d))
	}
	switch {
	case a.RetryAfter <= 0:
	case now >= p.resumes:
		p.resumes = now + prolong(a.RetryAfter)
	default: // the call began before the pause, which already has its jitter
		p.resumes = max(p.resumes, now+min(a.RetryAfter, p.maxPause))
	}
	if a.Reset <= 0 {
		return
	}
	p.renew(now)
	q := &p.quota
	ends, left := now+prolong(a.Reset), max(a.Remaining, 0)
	if q.ends > 0 && now+min(a.Reset, p.maxPause) <= q.ends+time.Second/2 {
		// Responses may arrive in another order than they were sent. Within a window the number of
		// events left can only fall, so the lowest number is the newest.
		left, ends = min(left, q.left), max(ends, q.ends)
	}
	*q = quota{left: left, ends: ends, limit: max(a.Limit, 0), window: min(a.Window, longest)}
}
