//penstock:pure

package peers

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// LeastInFlight chooses the free lane (worker) with the fewest in-flight attempts. Among several
// such lanes, it chooses at random. It ignores the speed of lanes.
type LeastInFlight struct{}

// Name returns "least_in_flight".
func (LeastInFlight) Name() string { return "least_in_flight" }

// New returns a chooser.
func (LeastInFlight) New(src rand.Source) dispatch.Chooser { return &leastInFlight{rand.New(src)} }

type leastInFlight struct{ rnd *rand.Rand }

func (l *leastInFlight) Choose(_ time.Duration, _ float64, _ uint64, c []dispatch.Candidate) int {
	best, equal := -1, 0
	for i := range c {
		switch {
		case !c[i].Free || best >= 0 && c[i].InFlight > c[best].InFlight:
		case best < 0 || c[i].InFlight < c[best].InFlight:
			best, equal = i, 1
		default:
			if equal++; l.rnd.IntN(equal) == 0 {
				best = i
			}
		}
	}
	return best
}

// TwoChoices chooses two free lanes at random, and of these the one with fewer in-flight attempts
// (Mitzenmacher 2001). If workers are unequal, the queue of a slow one may grow without bound,
// although all workers together could handle the load (arXiv 2004.00538).
type TwoChoices struct{}

// Name returns "two_choices".
func (TwoChoices) Name() string { return "two_choices" }

// New returns a chooser.
func (TwoChoices) New(src rand.Source) dispatch.Chooser { return &twoChoices{rand.New(src)} }

type twoChoices struct{ rnd *rand.Rand }

func (t *twoChoices) Choose(_ time.Duration, _ float64, _ uint64, c []dispatch.Candidate) int {
	first, second, n := -1, -1, 0
	for i := range c { // choose two by reservoir sampling
		if !c[i].Free {
			continue
		}
		n++
		switch {
		case n == 1:
			first = i
		case n == 2:
			second = i
		default:
			switch k := t.rnd.IntN(n); k {
			case 0:
				first = i
			case 1:
				second = i
			}
		}
	}
	if second >= 0 &&
		(c[second].InFlight < c[first].InFlight || c[second].InFlight == c[first].InFlight &&
			t.rnd.IntN(2) == 0) {
		return second
	}
	return first
}
