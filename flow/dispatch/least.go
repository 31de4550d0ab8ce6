//penstock:pure

package dispatch

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// LeastCompletion gives an item to the free lane that is expected to complete it first:
//
//	service + (work + cost - mean cost)/rate + penalty
//
// service is the drained round trip of an item of mean cost, work what is in flight there before it, and the penalty the
// largest expectation of any free lane times the lane's share of failures. All lanes are scanned: choosing the
// better of two at random is not even stable where workers are unequal (arXiv 2004.00538). Ties go to the
// faster lane, then to chance.
//
// With a Band above 0, chance decides among all lanes that are expected to take no more than that longer than the best:
// several senders that share the workers, each of which knows only what it has in flight itself, then do not all pick the
// same one (Mitzenmacher, How useful is old information?, 2000).
//
// A lane that was not used for max(1 s, 20 round trips) gets one item, so that one that was slow once is
// measured again. A lane that has never answered is expected to take the median time, not the best (it would
// be flooded) and not the worst (it would never be learned), and gets one item until it has answered.
type LeastCompletion struct {
	Band float64 // relative width of a tie, 0 to 1, such as 0.1; 0: exact ties only
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
	tie         = 1e-9 // relative difference below which two expectations are equal
)

type leastCompletion struct {
	rnd     *rand.Rand
	band    float64
	expect  []float64 // seconds, by candidate; scratch
	sorted  []float64 // scratch
	failing []int     // candidates; scratch
	hidden  []int     // the same
}

func (l *leastCompletion) Choose(now time.Duration, cost float64, _ uint64, c []Candidate) int {
	if len(l.expect) < len(c) {
		l.expect = make([]float64, len(c))
	}
	s := l.survey(now, cost, c)
	switch {
	case s.stale >= 0:
		return s.stale
	case s.unknown:
		l.learn(&s, cost, c)
	default:
		l.penalise(&s, cost, c)
	}
	return l.tied(s.best, c)
}

// learn chooses where a free lane has never answered: it is expected to take the median time.
func (l *leastCompletion) learn(s *survey, cost float64, c []Candidate) {
	l.complete(s, cost, c)
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
		l.better(s, i, c)
	}
}

// penalise compares the lanes that fail with the best of those that do not. Only one that would be better without its
// penalty can be with it, so that mostly there is nothing to compare.
func (l *leastCompletion) penalise(s *survey, cost float64, c []Candidate) {
	if l.band == 0 && (len(l.failing) == 0 || s.best >= 0 && l.leastFailing(cost, c) > l.expect[s.best]) {
		return
	}
	l.complete(s, cost, c)
	for _, i := range l.failing {
		l.expect[i] += s.worst * c[i].Failures
		l.better(s, i, c)
	}
}

// leastFailing is the least expectation of a free lane that fails, without its penalty.
func (l *leastCompletion) leastFailing(cost float64, c []Candidate) float64 {
	least := math.Inf(1)
	for _, i := range l.failing {
		least = min(least, expectation(&c[i], cost))
	}
	return least
}

// tied draws among the lanes within the band above the best.
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

// survey is what one scan of the lanes has found.
type survey struct {
	best, equal int     // the free lane that is known, does not fail and has the least expectation; so many are as good
	worst       float64 // the largest of the expectations, once they are complete
	stale       int     // free lane, known or not, that was unused for the longest beyond its time; -1: none
	unknown     bool    // a free lane is
}

// survey finds the best of the free lanes that are known and do not fail, with the expectations of those that may be it, and
// those that fail.
func (l *leastCompletion) survey(now time.Duration, cost float64, c []Candidate) survey {
	s := survey{best: -1, stale: -1}
	longest, limit := staleAfter, 0.0
	l.failing = l.failing[:0]
	for i := range c {
		k := &c[i]
		if !usable(k) {
			continue
		}
		if idle := now - k.Used; idle > longest && k.InFlight == 0 && idle > staleRounds*k.Service {
			s.stale, longest = i, idle
		}
		switch {
		case !k.Known:
			s.unknown = true
		case k.Failures > 0:
			l.failing = append(l.failing, i)
		case s.best >= 0 && surelyLonger(k, cost, limit): // most lanes need no division and no call
		default:
			l.expect[i] = expectation(k, cost)
			l.better(&s, i, c)
			limit = l.expect[s.best] * (1 + tie)
		}
	}
	return s
}

// complete fills in the expectations that the scan could leave out.
func (l *leastCompletion) complete(s *survey, cost float64, c []Candidate) {
	for i := range c {
		if k := &c[i]; usable(k) && k.Known {
			l.expect[i] = expectation(k, cost)
			s.worst = max(s.worst, l.expect[i])
		}
	}
}

// surelyLonger says, for a lane with a rate, whether expectation is above limit.
func surelyLonger(k *Candidate, cost, limit float64) bool {
	return k.Work+cost-k.Mean > (limit-float64(k.Service)*1e-9)*k.Rate && k.Work+cost >= k.Mean && k.Rate > 0 && k.Mean > 0
}

// better takes lane i as the best if it is, with an even chance for each that is as good.
func (l *leastCompletion) better(s *survey, i int, c []Candidate) {
	if s.best < 0 {
		s.best, s.equal = i, 1
		return
	}
	e, best := l.expect[i], l.expect[s.best]
	if d := e - best; d > tie*best {
		return
	} else if d >= -tie*best {
		switch mine, other := c[i].Rate, c[s.best].Rate; {
		case mine < other:
			return
		case mine == other:
			if s.equal++; l.rnd.IntN(s.equal) == 0 {
				s.best = i
			}
			return
		}
	}
	s.best, s.equal = i, 1
}

func usable(k *Candidate) bool { return k.Free && (k.Known || k.InFlight == 0) }

// Expectation is how long an item of this cost is expected to take at a lane that is known.
func Expectation(k Candidate, cost float64) time.Duration {
	return time.Duration(expectation(&k, cost) * float64(time.Second))
}

func expectation(k *Candidate, cost float64) float64 {
	e := float64(k.Service) * 1e-9
	if k.Rate <= 0 { // never seen with a backlog: as if it served one at a time
		return e * float64(1+k.InFlight)
	}
	work := k.Work
	if k.Mean > 0 {
		work += cost - k.Mean
	}
	if work >= 0 {
		return e + work/k.Rate
	}
	return max(e+work/k.Rate, e*leastShare)
}

// leastShare bounds how much faster than an item of mean cost a small one is expected to be.
const leastShare = 0.1

// median expectation of all lanes that are known, free or not; 0: none is.
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
