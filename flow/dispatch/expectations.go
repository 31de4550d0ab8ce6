//penstock:pure

package dispatch

import (
	"math"
	"time"
)

// expectations caches the expected completion times of all lanes for an item of one cost. Most
// items have the same cost, and between two items only few lanes change. So choosing a lane usually
// takes one comparison per lane.
type expectations struct {
	notified bool    // Changed is called for every change
	cost     float64 // cost of the last item
	filled   bool    // expect is for that cost
	// expect has the expected time of the item at each lane in seconds. It is +Inf if the lane is
	// not usable. It is negative if the lane has failures or has never delivered. Such a lane is
	// examined separately.
	expect []float64
	// stale is the latest time at which expect may still be used. After this time, a free lane may
	// have been idle for so long that it must be measured again.
	stale time.Duration
}

const mustExamine = -1

// Changed implements Follower.
func (l *leastCompletion) Changed(i int, c []Candidate) {
	k := &l.cache
	k.notified = true
	if i < 0 || !k.filled {
		k.filled = false
		return
	}
	k.update(i, &c[i])
}

func (k *expectations) update(i int, c *Candidate) {
	switch {
	case !usable(c):
		k.expect[i] = math.Inf(1)
		return
	case !c.Known || c.Failures > 0:
		k.expect[i] = mustExamine
	default:
		k.expect[i] = expectation(c, k.cost)
	}
	if c.InFlight == 0 {
		k.stale = min(k.stale, c.LastStart+max(staleAfter, staleRounds*c.Service))
	}
}

// isCached reports whether the cached expected times can be used. They must be for this cost, and
// no lane may have been idle for so long that it is due for another measurement. isCached fills the
// cache at the second item of the same cost.
func (l *leastCompletion) isCached(now time.Duration, cost float64, c []Candidate) bool {
	k := &l.cache
	if !k.notified {
		return false
	}
	if cost != k.cost {
		k.cost, k.filled = cost, false
		return false
	}
	if !k.filled || now > k.stale {
		if len(k.expect) < len(c) {
			k.expect = make([]float64, len(c))
		}
		k.expect, k.filled, k.stale = k.expect[:len(c)], true, math.MaxInt64
		for i := range c {
			k.update(i, &c[i])
		}
	}
	return now <= k.stale
}

// scanCached returns the same result as scanLanes, from the cached expectations. The caller has
// checked that no lane is stale, which means idle for so long that it must be measured again.
func (l *leastCompletion) scanCached(now time.Duration, cost float64, c []Candidate) scanResult {
	s := scanResult{best: -1, least: math.MaxFloat64, limit: math.MaxFloat64, stale: -1,
		longest: staleAfter}
	l.failing = l.failing[:0]
	expect := l.cache.expect
	for i := s.scan(expect, 0); i < len(expect); i = s.scan(expect, i+1) {
		if e := expect[i]; e < 0 {
			l.examine(&s, now, cost, i, c)
		} else {
			l.better(&s, i, e, c)
		}
	}
	return s
}

// scan updates the best lane with the lanes from i on. It stops at the first lane that must be
// examined separately or is about as good as the best one, and returns its index. scan calls no
// function, because with many lanes it takes most of the time of a choice.
func (s *scanResult) scan(expect []float64, i int) int {
	best, least, limit := s.best, s.least, s.limit
	for ; i < len(expect); i++ {
		e := expect[i]
		if e > limit {
			continue
		}
		if e < 0 || e-least >= -tie*least {
			break
		}
		best, least, limit = i, e, e*(1+tie)
	}
	if best != s.best {
		s.best, s.equal, s.least, s.limit = best, 1, least, limit
	}
	return i
}
