//penstock:pure

package control

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// Hedge sends the item that holds the watermark, the oldest that has not settled, a second time
// when its attempt takes longer than nearly all at its worker do, and longer than twice what
// another worker is expected to need: that one gets the twin (Dean and Barroso, The Tail at Scale,
// 2013). Both may deliver: only where a receiver takes a second copy without harm is that worth
// while, so the zero value means none. An item with keys, a suspect, what was sent again already,
// and attempts at Ordered lanes have no twin, and nothing has while nothing is delivered anywhere.
//
// The twin's delivery settles the item, and the first attempt runs on, since its end tells how long
// its worker takes; the first's delivery cancels the twin.
type Hedge struct {
	Share float64 // twins for each other attempt, at most, 0 to 1; 0: none. The engine uses 0.02
	Least int     // round trips of a worker that must be known before its attempts may have twins; 0 means 20
}

func (h Hedge) withDefaults() (Hedge, error) {
	switch {
	case !(h.Share >= 0 && h.Share <= 1):
		return h, fmt.Errorf("a share of %v twins: want 0 to 1", h.Share)
	case h.Least < 0:
		return h, fmt.Errorf("twins after %d round trips: want 1 or more, or 0 for %d", h.Least, defaultTail)
	case h.Least == 0:
		h.Least = defaultTail
	}
	return h, nil
}

const (
	hedgeLeast  = 10 * time.Millisecond // a round trip below that is not worth a twin
	hedgeSpeed  = 2                     // the other worker is expected to be so many times as fast
	tailShare   = 0.99                  // of the round trips at a worker are below its tail
	tailStep    = 0.25                  // relative
	defaultTail = 20
	tailStart   = 4 // as RFC 6298's timeout
)

// tail follows a quantile of the round trips at a lane, in seconds for an item of mean cost: it
// rises by a quarter for each that is longer, and falls by a hundredth of that for each other, so
// that it stays where one in a hundred is longer (Robbins and Monro 1951, of the logarithm).
type tail struct {
	at float64
	n  int
}

// sample takes in a round trip; mean and deviation are the smoothed ones.
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

// observe lets the tail of l see a round trip, normalised to an item of mean cost.
func (m *Machine) observe(l *lane, normal time.Duration) {
	if m.cfg.Hedge.Share == 0 {
		return
	}
	scale := l.est.expected(l.est.mean)
	l.tail.sample(normal.Seconds(), l.est.srtt*scale, l.est.rttvar*scale, m.cfg.Hedge.Least)
}

// held returns the attempt that holds the watermark if it may have a twin, and when.
func (m *Machine) held() (a *attempt, at time.Duration) {
	it := m.items.oldest
	if m.cfg.Hedge.Share == 0 || m.binds || it == nil || it.state != inFlight || len(it.running) != 1 || it.number > 1 ||
		it.keyed() || it.fate != undecided || it.account.suspect || it.account.piece || it.account.deaths > 0 {
		return nil, 0
	}
	a = it.running[0]
	if a.overdue || a.ordered || a.canceled || a.lane.tail.n < m.cfg.Hedge.Least {
		return nil, 0
	}
	wait := a.lane.tail.at
	if e := &a.lane.est; e.b > 0 && e.expected(e.mean) > 0 {
		wait *= e.expected(a.cost) / e.expected(e.mean)
	}
	return a, max(a.sent+max(toDuration(wait), hedgeLeast), a.hedgeAt)
}

// allows reports whether the share of twins leaves room for one.
func (h *Hedge) allows(c *counts) bool {
	return float64(c.hedged+1) <= h.Share*float64(c.sent-c.hedged)
}

// hedge starts a twin of the attempt that holds the watermark, if it is time.
func (m *Machine) hedge(out []Command) []Command {
	a, at := m.held()
	if a == nil || m.now < at || m.free == 0 || m.fresh.len() > 0 || !m.cfg.Hedge.allows(&m.counts) {
		return out
	}
	best, fastest := (*lane)(nil), time.Duration(0)
	for i, l := range m.up {
		c := &m.cands[i]
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
	if a.hedgeAt = a.sent + hedgeSpeed*fastest; m.now < a.hedgeAt {
		return out
	}
	m.counts.hedged++
	out = m.start(a.item, best, Twin, out)
	m.last.twin = true
	return out
}

// hedgeAt is when a twin may be due; false: none is in sight.
func (m *Machine) hedgeAt() (at time.Duration, ok bool) {
	if m.cfg.Hedge.Share == 0 || m.global.active || m.free == 0 || !m.cfg.Hedge.allows(&m.counts) {
		return 0, false
	}
	a, at := m.held()
	return at, a != nil && at > m.now
}
