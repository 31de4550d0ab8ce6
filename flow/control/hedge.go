//penstock:pure

package control

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// Hedge configures hedges: second attempts of the oldest unsettled item, which holds the watermark
// back. This item is hedged if its attempt takes longer than nearly all attempts at its worker, and
// longer than twice the expected time of another worker. That worker gets the hedge (Dean and
// Barroso, The Tail at Scale, 2013).
//
// Both attempts may deliver. So hedging suits only receivers that accept a second copy without
// harm, and the zero value means no hedges. Items with keys, suspects, pieces of poison, retried
// items and attempts at Ordered lanes are not hedged. There are no hedges during the global
// backoff, while new items wait, or with a dispatch policy that assigns each item to one lane.
//
// A delivery by the hedge settles the item. The first attempt then continues, because its end is a
// sample of its worker's time. A delivery by the first attempt cancels the hedge.
type Hedge struct {
	// maximum ratio of hedges to other attempts, 0 to 1; 0 means no hedges. The engine uses 0.02.
	Share float64
	Least int // known round trips of a worker before its attempts may be hedged; 0 means 20
}

func (h Hedge) withDefaults() (Hedge, error) {
	switch {
	case !(h.Share >= 0 && h.Share <= 1):
		return h, fmt.Errorf("a share of %v hedges: want 0 to 1", h.Share)
	case h.Least < 0:
		return h, fmt.Errorf("hedges after %d round trips: want 1 or more, or 0 for %d", h.Least,
			defaultTail)
	case h.Least == 0:
		h.Least = defaultTail
	}
	return h, nil
}

const (
	minHedgeAge = 10 * time.Millisecond // minimum age of a hedged attempt
	hedgeSpeed  = 2                     // minimum age, in expected times of the other worker
	tailShare   = 0.99                  // share of a worker's round trips that are below its tail
	tailStep    = 0.25                  // relative step of the tail
	defaultTail = 20
	tailStart   = 4 // first tail, in deviations above the mean, as in RFC 6298's timeout
)

// tail tracks a quantile of the round trips at a lane, in seconds for an item of mean cost. It
// rises by about a quarter for each longer round trip, and falls by about a hundredth of that for
// each round trip that is not longer. So about one round trip in a hundred is longer (Robbins and
// Monro 1951, applied to the logarithm).
type tail struct {
	at float64
	n  int
}

// sample records a round trip. mean and deviation are the smoothed values of the lane.
func (q *tail) sample(rtt, mean, deviation float64, least int) {
	if q.n < least {
		q.n++
		q.at = max(q.at, mean+tailStart*deviation)
		return
	}
	if rtt > q.at {
		q.at *= 1 + tailShare*tailStep
	} else {
		q.at = max(q.at*(1-(1-tailShare)*tailStep), mean)
	}
}

// observe passes a round trip, normalised to an item of mean cost, to the tail of l.
func (t *attempts) observe(l *lane, normal time.Duration) {
	if t.cfg.Hedge.Share == 0 {
		return
	}
	scale := l.est.expected(l.est.mean)
	l.est.tail.sample(normal.Seconds(), l.est.srtt*scale, l.est.rttvar*scale, t.cfg.Hedge.Least)
}

// hedgeCandidate returns the running attempt of the oldest unsettled item, if it may be hedged, and
// the earliest time of its hedge.
func (t *attempts) hedgeCandidate() (a *attempt, at time.Duration) {
	it := t.backlog.items.oldest
	if t.cfg.Hedge.Share == 0 || t.lanes.policy.binds || it == nil || it.state != inFlight ||
		len(it.running) != 1 || it.number > 1 || it.keyed() || it.decision != undecided ||
		it.account.suspect || it.account.piece || it.account.deaths > 0 {
		return nil, 0
	}
	a = it.running[0]
	if a.overdue || a.ordered || a.canceled || a.lane.est.tail.n < t.cfg.Hedge.Least {
		return nil, 0
	}
	wait := a.lane.est.tail.at
	if e := &a.lane.est; e.b > 0 && e.expected(e.mean) > 0 {
		wait *= e.expected(a.cost) / e.expected(e.mean)
	}
	return a, max(a.sent+max(toDuration(wait), minHedgeAge), a.hedgeAt)
}

// allows reports whether Share allows one more hedge.
func (h *Hedge) allows(c *counts) bool {
	return float64(c.hedged+1) <= h.Share*float64(c.sent-c.hedged)
}

// hedge starts a hedge of the oldest unsettled item, if one is due and a lane is fast enough.
func (t *attempts) hedge(out []Command) []Command {
	a, at := t.hedgeCandidate()
	if a == nil || t.now < at || t.lanes.free == 0 || t.backlog.fresh.len() > 0 ||
		!t.cfg.Hedge.allows(&t.counts) {
		return out
	}
	best, fastest := (*lane)(nil), time.Duration(0)
	for i, l := range t.lanes.up {
		c := &t.lanes.cands[i]
		if l == a.lane || !c.Free || !c.Known || c.Failures > 0 || l.limits.Ordered {
			continue
		}
		if e := dispatch.Expectation(*c, a.cost); best == nil || e < fastest {
			best, fastest = l, e
		}
	}
	if best == nil {
		return out
	}
	if a.hedgeAt = a.sent + hedgeSpeed*fastest; t.now < a.hedgeAt {
		return out
	}
	t.counts.hedged++
	out = t.start(a.item, best, HedgeAttempt, out)
	t.last.isHedge = true
	return out
}

// hedgeAt returns the time at which a hedge may be due. It returns false if none is expected at a
// later time than now.
func (t *attempts) hedgeAt() (at time.Duration, ok bool) {
	if t.cfg.Hedge.Share == 0 || t.lanes.global.active || t.lanes.free == 0 || !t.cfg.Hedge.allows(&t.counts) {
		return 0, false
	}
	a, at := t.hedgeCandidate()
	return at, a != nil && at > t.now
}
