//penstock:pure

package peers

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// LeastInFlight gives an item to the free lane with the fewest attempts in flight. If several lanes
// have the fewest, it chooses one of them at random. It ignores the speed of lanes.
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

// TwoChoices draws two free lanes at random and takes the one with fewer attempts in flight
// (Mitzenmacher 2001). If the workers are unequal, the queue of one may grow without bound under a
// load that all together could handle (arXiv 2004.00538).
type TwoChoices struct{}

// Name returns "two_choices".
func (TwoChoices) Name() string { return "two_choices" }

// New returns a chooser.
func (TwoChoices) New(src rand.Source) dispatch.Chooser { return &twoChoices{rand.New(src)} }

type twoChoices struct{ rnd *rand.Rand }

func (t *twoChoices) Choose(_ time.Duration, _ float64, _ uint64, c []dispatch.Candidate) int {
	first, second, n := -1, -1, 0
	for i := range c { // draw two by reservoir sampling
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
