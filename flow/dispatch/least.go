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
// service is the drained round trip of an item of mean cost, work what is in flight there before
// it, and the penalty the largest expectation of any free lane times the lane's share of failures.
// All lanes are scanned: choosing the better of two at random is not even stable where workers are
// unequal (arXiv 2004.00538). Ties go to the faster lane, then to chance.
//
// With a Band above 0, chance decides among all lanes that are expected to take no more than that
// longer than the best: several senders that share the workers, each of which knows only what it
// has in flight itself, then do not all pick the same one (Mitzenmacher, How useful is old
// information?, 2000).
//
// A lane that was not used for max(1 s, 20 round trips) gets one item, so that one that was slow
// once is measured again. A lane that has never answered is expected to take the median time, not
// the best (it would be flooded) and not the worst (it would never be learned), and gets one item
// until it has answered.
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
	kept    kept
	sorted  []float64 // scratch
	failing []int     // candidates; scratch
	hidden  []int     // the same
}

func (l *leastCompletion) Choose(now time.Duration, cost float64, _ uint64, c []Candidate) int {
	return l.choose(now, cost, c, l.keeps(now, cost, c))
}

// choose goes by what is kept of the lanes, or scans them.
func (l *leastCompletion) choose(now time.Duration, cost float64, c []Candidate, kept bool) int {
	if len(l.expect) < len(c) {
		l.expect = make([]float64, len(c))
	}
	var s survey
	if kept {
		s = l.recall(now, cost, c)
	} else {
		s = l.survey(now, cost, c)
	}
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
		l.better(s, i, l.expect[i], c)
	}
}

// penalise compares the lanes that fail with the best of those that do not. Only one that would be
// better without its penalty can be with it, so that mostly there is nothing to compare.
func (l *leastCompletion) penalise(s *survey, cost float64, c []Candidate) {
	if l.band == 0 && (len(l.failing) == 0 || s.best >= 0 && l.leastFailing(cost, c) > s.least) {
		return
	}
	l.complete(s, cost, c)
	for _, i := range l.failing {
		l.expect[i] += s.worst * c[i].Failures
		l.better(s, i, l.expect[i], c)
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
	best, equal int           // the free lane that is known, does not fail and has the least expectation; so many are as good
	least       float64       // its expectation
	limit       float64       // a lane whose expectation is above that is surely not as good
	worst       float64       // the largest of the expectations, once they are complete
	stale       int           // free lane, known or not, that was unused for the longest beyond its time; -1: none
	longest     time.Duration // for which it, or a lane in good time, was unused
	unknown     bool          // a free lane is
}

// survey finds the best of the free lanes that are known and do not fail, with its expectation, and
// those that fail. Most lanes have nothing but more work than the best so far, which needs neither
// a division nor a call.
func (l *leastCompletion) survey(now time.Duration, cost float64, c []Candidate) survey {
	s := survey{best: -1, limit: math.Inf(1), stale: -1, longest: staleAfter}
	l.failing = l.failing[:0]
	for i := range c {
		k := &c[i]
		if !k.Free || k.surelyLonger(cost, s.limit) && k.Failures == 0 && k.Known && now-k.Used <= s.longest {
			continue
		}
		l.look(&s, now, cost, i, c)
	}
	return s
}

// look takes free lane i into the survey.
func (l *leastCompletion) look(s *survey, now time.Duration, cost float64, i int, c []Candidate) {
	k := &c[i]
	if !usable(k) {
		return
	}
	if idle := now - k.Used; idle > s.longest && k.InFlight == 0 && idle > staleRounds*k.Service {
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

// surelyLonger says, for a lane with a rate, whether its expectation is above limit.
func (k *Candidate) surelyLonger(cost, limit float64) bool {
	return k.Work+cost-k.Mean > (limit-float64(k.Service)*1e-9)*k.Rate && k.Rate > 0 && k.Mean > 0
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

// better takes lane i, with this expectation, as the best if it is, with an even chance for each
// that is as good.
func (l *leastCompletion) better(s *survey, i int, e float64, c []Candidate) {
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
