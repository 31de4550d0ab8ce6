//penstock:pure

package dispatch

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// LeastCompletion gives an item to the free lane that is expected to complete it first. The
// expected time is
//
//	service + (work + cost - mean cost)/rate + penalty
//
// service is the round trip of an item of mean cost at a worker with nothing else in flight. work
// is the cost in flight before the item. The penalty of a failing lane is the share of its recent
// attempts that failed, times the largest expected time of any free lane. All lanes are compared,
// because choosing the better of two random lanes is not stable with unequal workers (arXiv
// 2004.00538). Of lanes with the same expected time, the one with the highest rate is chosen, and
// of equal rates a random one.
//
// With a Band above 0, the choice is random among all lanes with an expected time of at most (1 +
// Band) times the best one. Example: with a Band of 0.1 and a best time of 100 ms, these are the
// lanes with at most 110 ms. Use a Band if several senders share the workers. Each sender knows
// only its own work in flight, so without a Band all of them would pick the same lane
// (Mitzenmacher, How useful is old information?, 2000).
//
// A lane that was not used for max(1 s, 20 round trips) gets one item. So a lane that was once slow
// is measured again. For a lane that has never delivered, the median of the other lanes' expected
// times is assumed. If the shortest time were assumed, all new lanes would be used first. If the
// longest were assumed, they would stay unused. Until a lane has delivered, it gets only one item
// at a time.
type LeastCompletion struct {
	Band float64 // relative width of a tie, 0 to 1, such as 0.1; 0 means exact ties only
}

// Name returns "least_completion".
func (LeastCompletion) Name() string { return "least_completion" }

// New returns a chooser.
func (p LeastCompletion) New(src rand.Source) Chooser {
	return &leastCompletion{rnd: rand.New(src), band: min(max(0, p.Band), 1)}
}

const (
	staleAfter  = time.Second
	staleRounds = 20
	tie         = 1e-9 // relative difference below which two expectations count as equal
)

type leastCompletion struct {
	rnd     *rand.Rand
	band    float64
	expect  []float64 // seconds, by candidate; scratch memory
	cache   expectations
	sorted  []float64 // scratch memory
	failing []int     // candidates; scratch memory
	hidden  []int     // candidates; scratch memory
}

func (l *leastCompletion) Choose(now time.Duration, cost float64, _ uint64, c []Candidate) int {
	return l.choose(now, cost, c, l.isCached(now, cost, c))
}

// choose returns the index of the lane for an item, or -1 if no lane is usable. If kept is true, it
// uses the cached expectations instead of scanning the lanes.
func (l *leastCompletion) choose(now time.Duration, cost float64, c []Candidate, kept bool) int {
	if len(l.expect) < len(c) {
		l.expect = make([]float64, len(c))
	}
	var s scanResult
	if kept {
		s = l.scanCached(now, cost, c)
	} else {
		s = l.scanLanes(now, cost, c)
	}
	switch {
	case s.stale >= 0:
		return s.stale
	case s.unknown:
		l.chooseUnmeasured(&s, cost, c)
	default:
		l.penalise(&s, cost, c)
	}
	return l.tied(s.best, c)
}

// chooseUnmeasured chooses a lane if some free lane has never delivered. For such a lane, the
// median expected time of the other lanes is assumed.
func (l *leastCompletion) chooseUnmeasured(s *scanResult, cost float64, c []Candidate) {
	l.computeAll(s, cost, c)
	median := l.median(cost, c)
	worst := max(s.worst, median)
	s.best = -1
	for i := range c {
		k := &c[i]
		if !usable(k) {
			continue
		}
		if !k.Known {
			l.expect[i] = median
		}
		l.expect[i] += worst * k.Failures
		l.better(s, i, l.expect[i], c)
	}
}

// penalise compares the lanes that have failures with the best of the other lanes. Usually there is
// nothing to compare: the expected time of each lane with failures is longer than that of the best
// lane even without the penalty.
func (l *leastCompletion) penalise(s *scanResult, cost float64, c []Candidate) {
	if l.band == 0 && (len(l.failing) == 0 || s.best >= 0 && l.leastFailing(cost, c) > s.least) {
		return
	}
	l.computeAll(s, cost, c)
	for _, i := range l.failing {
		l.expect[i] += s.worst * c[i].Failures
		l.better(s, i, l.expect[i], c)
	}
}

// leastFailing returns the least expectation of a free failing lane, without its penalty.
func (l *leastCompletion) leastFailing(cost float64, c []Candidate) float64 {
	least := math.Inf(1)
	for _, i := range l.failing {
		least = min(least, expectation(&c[i], cost))
	}
	return least
}

// tied returns a random one of the lanes with an expectation of at most (1 + l.band) times the best
// one. If l.band is 0, it returns best.
func (l *leastCompletion) tied(best int, c []Candidate) int {
	if l.band == 0 || best < 0 {
		return best
	}
	limit, n := l.expect[best]*(1+l.band), 0
	for i := range c {
		if !usable(&c[i]) || l.expect[i] > limit {
			continue
		}
		if n++; l.rnd.IntN(n) == 0 {
			best = i
		}
	}
	return best
}

// scanResult is the result of one scan of the lanes.
type scanResult struct {
	// best is the lane with the least expected time among the free lanes that have delivered and
	// have no failures. equal is the number of lanes with the same expected time and rate, best
	// included.
	best, equal int
	least       float64 // expectation of best
	limit       float64 // a lane with an expectation above limit is certainly worse
	worst       float64 // the largest expectation, once all are computed
	// A lane that was unused for long must be measured again (see LeastCompletion). stale is the
	// free lane of this kind that was unused for longest, or -1 if there is none.
	stale   int
	longest time.Duration // time since lane stale was last used, or staleAfter if there is none
	unknown bool          // some free lane has not delivered yet
}

// scanLanes returns the free lane with the least expected time among those that have delivered and
// have no failures. It stores the free lanes with failures in l.failing. The result also has the
// lane that must be measured again (stale), and whether a free lane has not delivered yet
// (unknown). The expected time is computed only for few lanes. Most are skipped because
// surelyLonger shows, without a division, that they are slower than the best lane so far.
func (l *leastCompletion) scanLanes(now time.Duration, cost float64, c []Candidate) scanResult {
	s := scanResult{best: -1, limit: math.Inf(1), stale: -1, longest: staleAfter}
	l.failing = l.failing[:0]
	for i := range c {
		k := &c[i]
		if !k.Free || k.surelyLonger(cost, s.limit) && k.Failures == 0 && k.Known &&
			now-k.LastStart <= s.longest {
			continue
		}
		l.examine(&s, now, cost, i, c)
	}
	return s
}

// examine adds free lane i to the result.
func (l *leastCompletion) examine(s *scanResult, now time.Duration, cost float64, i int,
	c []Candidate) {
	k := &c[i]
	if !usable(k) {
		return
	}
	if idle := now - k.LastStart; idle > s.longest && k.InFlight == 0 &&
		idle > staleRounds*k.Service {
		s.stale, s.longest = i, idle
	}
	switch {
	case !k.Known:
		s.unknown = true
	case k.Failures > 0:
		l.failing = append(l.failing, i)
	default:
		l.better(s, i, expectation(k, cost), c)
	}
}

// surelyLonger reports whether the expectation of a lane exceeds limit. It returns false if the
// lane's rate or mean cost is unknown.
func (k *Candidate) surelyLonger(cost, limit float64) bool {
	return k.Work+cost-k.Mean > (limit-float64(k.Service)*1e-9)*k.Rate && k.Rate > 0 && k.Mean > 0
}

// computeAll computes the expectations of all usable and measured lanes, because the scan has
// skipped some of them. It also computes the largest of these expectations.
func (l *leastCompletion) computeAll(s *scanResult, cost float64, c []Candidate) {
	for i := range c {
		if k := &c[i]; usable(k) && k.Known {
			l.expect[i] = expectation(k, cost)
			s.worst = max(s.worst, l.expect[i])
		}
	}
}

// better makes lane i the best if its expectation e is the least. Of lanes with the same
// expectation, it prefers the one with the highest rate. Of equal rates, it chooses each lane with
// the same probability.
func (l *leastCompletion) better(s *scanResult, i int, e float64, c []Candidate) {
	if s.best >= 0 {
		if d := e - s.least; d > tie*s.least {
			return
		} else if d >= -tie*s.least {
			switch mine, other := c[i].Rate, c[s.best].Rate; {
			case mine < other:
				return
			case mine == other:
				if s.equal++; l.rnd.IntN(s.equal) == 0 {
					s.best, s.least, s.limit = i, e, e*(1+tie)
				}
				return
			}
		}
	}
	s.best, s.equal, s.least, s.limit = i, 1, e, e*(1+tie)
}

func usable(k *Candidate) bool { return k.Free && (k.Known || k.InFlight == 0) }

// Expectation returns the expected time for an item of this cost at a known lane.
func Expectation(k Candidate, cost float64) time.Duration {
	return time.Duration(expectation(&k, cost) * float64(time.Second))
}

func expectation(k *Candidate, cost float64) float64 {
	e := float64(k.Service) * 1e-9
	if k.Rate <= 0 { // never observed with a backlog: assume that it serves one item at a time
		return e * float64(1+k.InFlight)
	}
	work := k.Work
	if k.Mean > 0 {
		work += cost - k.Mean
	}
	if work >= 0 {
		return e + work/k.Rate
	}
	return max(e+work/k.Rate, e*minShare)
}

// minShare is the least expectation of a small item, as a share of that of an item of mean cost.
const minShare = 0.1

// median returns the median expectation of all known lanes, free or not, or 0.
func (l *leastCompletion) median(cost float64, c []Candidate) float64 {
	l.sorted = l.sorted[:0]
	for i := range c {
		if c[i].Known {
			l.sorted = append(l.sorted, expectation(&c[i], cost))
		}
	}
	if len(l.sorted) == 0 {
		return 0
	}
	slices.Sort(l.sorted)
	return l.sorted[len(l.sorted)/2]
}
