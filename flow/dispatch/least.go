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
// A lane that was not used for max(1 s, 20 round trips) gets one item, so that one that was slow once is
// measured again. A lane that has never answered is expected to take the median time, not the best (it would
// be flooded) and not the worst (it would never be learned), and gets one item until it has answered.
type LeastCompletion struct{}

// Name returns "least_completion".
func (LeastCompletion) Name() string { return "least_completion" }

// New returns a chooser.
func (LeastCompletion) New(src rand.Source) Chooser { return &leastCompletion{rnd: rand.New(src)} }

const (
	staleAfter  = time.Second
	staleRounds = 20
	tie         = 1e-9 // relative difference below which two expectations are equal
)

type leastCompletion struct {
	rnd    *rand.Rand
	expect []float64 // seconds, by candidate; scratch
	sorted []float64 // scratch
}

func (l *leastCompletion) Choose(now time.Duration, cost float64, _ uint64, c []Candidate) int {
	stale, worst, unknown, failing := l.survey(now, cost, c)
	if stale >= 0 {
		return stale
	}
	median := 0.0
	if unknown {
		median = l.median(cost, c)
		worst = max(worst, median)
	}
	best, equal := -1, 1
	for i := range c {
		if !usable(&c[i]) {
			continue
		}
		if !c[i].Known {
			l.expect[i] = median
		}
		if failing {
			l.expect[i] += worst * c[i].Failures
		}
		switch {
		case best < 0 || less(l.expect[i], c[i].Rate, l.expect[best], c[best].Rate):
			best, equal = i, 1
		case !less(l.expect[best], c[best].Rate, l.expect[i], c[i].Rate):
			if equal++; l.rnd.IntN(equal) == 0 {
				best = i
			}
		}
	}
	return best
}

// survey fills in the expectations of the free lanes that are known, and finds the lane that was unused for
// the longest beyond its time.
func (l *leastCompletion) survey(now time.Duration, cost float64, c []Candidate) (stale int, worst float64, unknown, failing bool) {
	if len(l.expect) < len(c) {
		l.expect = make([]float64, len(c))
	}
	stale = -1
	var oldest time.Duration
	for i := range c {
		k := &c[i]
		if !usable(k) {
			continue
		}
		failing = failing || k.Failures > 0
		if !k.Known {
			unknown = true
			continue
		}
		e := expectation(k, cost)
		l.expect[i] = e
		worst = max(worst, e)
		if idle := now - k.Used; idle > staleAfter && k.InFlight == 0 && idle > staleRounds*k.Service && idle > oldest {
			stale, oldest = i, idle
		}
	}
	return stale, worst, unknown, failing
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
	if k.Mean > 0 {
		e += (cost - k.Mean) / k.Rate
	}
	return max(0, e) + k.Work/k.Rate
}

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

// less orders by expectation, then by rate, the faster first.
func less(e, rate, other, otherRate float64) bool {
	if d := e - other; d < -tie*other || d > tie*other {
		return d < 0
	}
	return rate > otherRate
}
