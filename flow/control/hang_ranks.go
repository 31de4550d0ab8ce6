//penstock:pure

package control

import (
	"math"
	"math/bits"
	"time"
)

// hangRanks separates two causes of attempts that hang. Bad data hangs regardless of the number of
// attempts at the worker. Other attempts hang because the worker drops those above a certain number
// in flight.
//
// The rank of an attempt is the number of attempts that the worker held when it was sent: those
// sent before that time and delivered after it. The outcomes are counted by rank, over about the
// last 100 deliveries. A likelihood ratio test looks for a level: the rank from which attempts hang
// with a much higher probability, if two probabilities explain the outcomes better than one. The
// rank does not depend on whether the data of the attempt is bad, so bad data rarely looks like a
// level.
//
// Example: a worker drops attempts above 5 in flight. Of 12 sent at once, five are delivered (ranks
// 0 to 4), and seven hang (all of rank 5, because only five were delivered). The logarithm of the
// likelihood is 0 with a step at rank 5, and 7 log(7/12) + 5 log(5/12) = -8.2 without.
type hangRanks struct {
	ranks [rankBuckets]hangCount
	level int       // bucket of the known level; 0: none
	above hangCount // outcomes from the level on; they do not age while the level is known
	// time for which attempts below the level had places, in seconds; decayed
	hungFor, deliveredFor float64
	// attempts counted as hung that are overdue and were not delivered (overdue), and those that
	// were delivered after all (slow); decayed
	overdue, slow float64
	// Attempts are counted in the order in which they were sent. Otherwise deliveries would be
	// counted before earlier attempts that hang, and the difference would look like a level.
	uncounted []rankedAttempt
}

// rankedAttempt is the outcome of an attempt with the given rank: it hangs (hung), or it was
// delivered. It had a place in the window for the given number of seconds.
type rankedAttempt struct {
	id      uint64
	rank    int
	hung    bool
	seconds float64
}

// hangCount counts outcomes. The counts are decayed.
type hangCount struct{ hung, delivered float64 }

const (
	exactRanks   = 8     // ranks with buckets of their own; then four buckets for each power of two
	rankBuckets  = 48    // the last one begins at rank 7168
	rankMemory   = 100.0 // deliveries over which the counts are averaged
	stepEvidence = 10.0  // logarithm of the likelihood ratio from which a level is assumed
	stepRefuses  = 0.2   // minimum share of good data that hangs from the level on
	maxWidening  = 64.0
	maxUncounted = 256
)

// rankBucket returns the bucket of a rank.
func rankBucket(rank int) int {
	if rank < exactRanks {
		return max(0, rank)
	}
	shift := bits.Len(uint(rank)) - 3
	return min(exactRanks+4*(shift-1)+rank>>shift-4, rankBuckets-1)
}

// bucketRank returns the lowest rank of a bucket.
func bucketRank(bucket int) int {
	if bucket < exactRanks {
		return bucket
	}
	shift := (bucket-exactRanks)/4 + 1
	return ((bucket-exactRanks)%4 + 4) << shift
}

// observe notes that attempt a hangs, or that it was delivered.
func (h *hangRanks) observe(a *attempt, hung bool, seconds float64) {
	h.uncounted = append(h.uncounted, rankedAttempt{a.id, a.rank, hung, seconds})
}

// count removes attempts from uncounted and counts their outcomes: those of the attempts that were
// sent before the oldest attempt with a place in the window. If oldest is nil, no attempt has a
// place, and all are counted.
func (h *hangRanks) count(oldest *attempt) {
	kept := h.uncounted[:0]
	for i, d := range h.uncounted {
		if oldest != nil && d.id > oldest.id && len(h.uncounted)-i <= maxUncounted {
			kept = append(kept, d)
		} else {
			h.add(d.rank, d.hung, d.seconds)
		}
	}
	h.uncounted = kept
}

// at returns the counts of this rank. While a level is known, those above it do not age.
func (h *hangRanks) at(rank int) (c *hangCount, above bool) {
	if i := rankBucket(rank); h.level == 0 || i < h.level {
		return &h.ranks[i], false
	}
	return &h.above, true
}

// add counts the outcome of an attempt of this rank, which had a place for the given time.
func (h *hangRanks) add(rank int, hung bool, seconds float64) {
	const keep = 1 - 1/rankMemory
	c, above := h.at(rank)
	switch {
	case above && !hung: // sent before the level was known, or at its edge
		return
	case hung:
		c.hung++
		if !above {
			h.hungFor += seconds
		}
		return
	}
	c.delivered++
	h.deliveredFor += seconds
	for k := range h.ranks {
		h.ranks[k].hung *= keep
		h.ranks[k].delivered *= keep
	}
	h.hungFor *= keep
	h.deliveredFor *= keep
	h.overdue *= keep
	h.slow *= keep
}

// undo notes that attempt a, which was counted as hung, has been delivered.
func (h *hangRanks) undo(a *attempt) {
	h.slow++
	if a.overdue {
		h.overdue = max(0, h.overdue-1)
	}
	for i := range h.uncounted {
		if d := &h.uncounted[i]; d.id == a.id {
			d.hung = false
			return
		}
	}
	c, above := h.at(a.rank)
	if c.hung = max(0, c.hung-1); !above {
		h.hungFor = max(0, h.hungFor-a.heldFor)
	}
	h.add(a.rank, false, a.heldFor)
}

// below returns the sum of the outcomes below the level.
func (h *hangRanks) below() (sum hangCount) {
	for _, c := range h.ranks {
		sum.hung += c.hung
		sum.delivered += c.delivered
	}
	return sum
}

// widening returns the number of places in the window that are needed for each attempt that the
// worker holds. It is 1 if no attempts hang because of bad data. Otherwise it is higher, because
// hanging attempts have a place until they are recognized. The parameter least is the minimum, in
// seconds, for the time that delivered attempts had places.
func (h *hangRanks) widening(least float64) float64 {
	delivered := max(h.deliveredFor, least, time.Nanosecond.Seconds()) // round trips may take no time
	return min(1+h.hungShare()*h.hungFor/delivered, maxWidening)
}

// drainedWidening returns the number of places that are needed for each attempt that a worker
// without a queue holds. There a hanging attempt has a place for hangingTimes round trips.
func (h *hangRanks) drainedWidening() float64 {
	n := h.below()
	return min(1+h.hungShare()*hangingTimes*n.hung/(n.delivered+1), maxWidening)
}

// hungShare returns the share of the attempts counted as hung that are not only slow. It grows from
// 0 with the attempts that become overdue and do not return. It is 0 if h is nil.
func (h *hangRanks) hungShare() float64 {
	if h == nil {
		return 0
	}
	return h.overdue / (h.overdue + h.slow + 1)
}

// findLevel returns the level, if the outcomes show one: the rank from which attempts hang (see
// hangRanks). If a level is known already, only a lower one is found.
func (h *hangRanks) findLevel() (rank int, found bool) {
	if h.hungShare() < 0.5 {
		return 0, false
	}
	all, low := h.below(), hangCount{}
	best, at := stepEvidence, 0
	for i := 1; i < rankBuckets; i++ {
		low.hung += h.ranks[i-1].hung
		low.delivered += h.ranks[i-1].delivered
		if h.ranks[i].hung == 0 {
			continue
		}
		high := hangCount{all.hung - low.hung, all.delivered - low.delivered}
		if e := stepOf(low, high); e > best {
			best, at = e, i
		}
	}
	if at == 0 {
		return 0, false
	}
	h.above = hangCount{}
	for i := at; i < rankBuckets; i++ {
		h.above.hung += h.ranks[i].hung
		h.above.delivered += h.ranks[i].delivered
		h.ranks[i] = hangCount{}
	}
	h.level = at
	return bucketRank(at), true
}

// dropLevel forgets the level and its outcomes.
func (h *hangRanks) dropLevel() { h.level, h.above = 0, hangCount{} }

// refuted reports whether the known level is wrong, because attempts sent at fewer in flight than
// the level hang about as often as those sent at more.
func (h *hangRanks) refuted() bool {
	return h.level > 0 && stepOf(h.below(), h.above) < stepEvidence/4
}

// stepOf returns the evidence for a level, as a log-likelihood ratio.
func stepOf(low, high hangCount) float64 {
	n, m := low.hung+low.delivered, high.hung+high.delivered
	if n < 1e-9 || m < 1e-9 || low.delivered < 1e-9 {
		return 0
	}
	if high.delivered/m > (1-stepRefuses)*low.delivered/n {
		return 0
	}
	all := hangCount{low.hung + high.hung, low.delivered + high.delivered}
	return low.logLikelihood() + high.logLikelihood() - all.logLikelihood()
}

// logLikelihood returns the logarithm of the likelihood of the outcomes under the probability that
// explains them best.
func (c hangCount) logLikelihood() float64 {
	n := c.hung + c.delivered
	return xlogy(c.hung, c.hung/n) + xlogy(c.delivered, c.delivered/n)
}

func xlogy(x, y float64) float64 {
	if x < 1e-9 {
		return 0
	}
	return x * math.Log(y)
}
