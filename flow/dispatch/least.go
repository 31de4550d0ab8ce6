//penstock:pure

package dispatch

import (
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
	rnd    *rand.Rand
	band   float64
	expect []float64 // seconds, by candidate; scratch
	sorted []float64 // scratch
}

func (l *leastCompletion) Choose(now time.Duration, cost float64, _ uint64, c []Candidate) int {
	if len(l.expect) < len(c) {
		l.expect = make([]float64, len(c))
	}
	s := l.survey(now, cost, c)
	if s.stale >= 0 {
		return s.stale
	}
	if !s.unknown && !s.failing {
		return l.tied(s.best, c)
	}
	median := 0.0
	if s.unknown {
		median = l.median(cost, c)
	}
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
		l.better(&s, i, c)
	}
	return l.tied(s.best, c)
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
	best, equal      int     // the free lane that is known and has the least expectation; so many are as good
	worst            float64 // expectation of a free lane
	stale            int     // free lane, known or not, that was unused for the longest beyond its time; -1: none
	unknown, failing bool    // a free lane is
}

// survey fills in the expectations of the free lanes that are known.
func (l *leastCompletion) survey(now time.Duration, cost float64, c []Candidate) survey {
	s := survey{best: -1, stale: -1}
	longest := staleAfter
	for i := range c {
		k := &c[i]
		if !usable(k) {
			continue
		}
		if idle := now - k.Used; idle > longest && k.InFlight == 0 && idle > staleRounds*k.Service {
			s.stale, longest = i, idle
		}
		if k.Failures > 0 {
			s.failing = true
		}
		if !k.Known {
			s.unknown = true
			continue
		}
		e := expectation(k, cost)
		l.expect[i] = e
		if e > s.worst {
			s.worst = e
		}
		if s.best < 0 || e-l.expect[s.best] <= tie*l.expect[s.best] { // most lanes need no call
			l.better(&s, i, c)
		}
	}
	return s
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
