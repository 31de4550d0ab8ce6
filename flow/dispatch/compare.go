//penstock:pure

package dispatch

import (
	"math"
	"math/rand/v2"
	"time"
)

// LeastInFlight gives an item to the free lane with the fewest attempts in flight; ties go to
// chance. It knows nothing of how fast a lane is, and is here for comparison.
type LeastInFlight struct{}

// Name returns "least_in_flight".
func (LeastInFlight) Name() string { return "least_in_flight" }

// New returns a chooser.
func (LeastInFlight) New(src rand.Source) Chooser { return &leastInFlight{rand.New(src)} }

type leastInFlight struct{ rnd *rand.Rand }

func (l *leastInFlight) Choose(_ time.Duration, _ float64, _ uint64, c []Candidate) int {
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

// TwoChoices draws two free lanes and takes the one with fewer attempts in flight (Mitzenmacher
// 2001). It is here for comparison: with unequal workers it is not even stable under every load
// that they could bear (arXiv 2004.00538).
type TwoChoices struct{}

// Name returns "two_choices".
func (TwoChoices) Name() string { return "two_choices" }

// New returns a chooser.
func (TwoChoices) New(src rand.Source) Chooser { return &twoChoices{rand.New(src)} }

type twoChoices struct{ rnd *rand.Rand }

func (t *twoChoices) Choose(_ time.Duration, _ float64, _ uint64, c []Candidate) int {
	first, second, n := -1, -1, 0
	for i := range c { // a sample of two by reservoir
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
	if second >= 0 && (c[second].InFlight < c[first].InFlight || c[second].InFlight == c[first].InFlight && t.rnd.IntN(2) == 0) {
		return second
	}
	return first
}

// PeakEWMA gives an item to the free lane with the least peak-sensitive mean round trip times what
// is in flight there, as Finagle does: the mean jumps to a round trip above it and decays over 10
// s. It is here for comparison: a lane that answers errors fast attracts nearly everything.
type PeakEWMA struct{}

// Name returns "peak_ewma".
func (PeakEWMA) Name() string { return "peak_ewma" }

// New returns a chooser.
func (PeakEWMA) New(src rand.Source) Chooser { return &peakEWMA{rnd: rand.New(src)} }

type peakEWMA struct{ rnd *rand.Rand }

const (
	peakDecay   = 10 * time.Second
	peakPenalty = 1e6 // cost of a lane that is not known and has something in flight, in seconds
)

func (p *peakEWMA) Choose(now time.Duration, _ float64, _ uint64, c []Candidate) int {
	best, equal, least := -1, 0, math.Inf(1)
	for i := range c {
		k := &c[i]
		if !k.Free {
			continue
		}
		cost := 0.0
		switch {
		case k.Peak > 0:
			idle := max(0, now-k.Answered).Seconds() / peakDecay.Seconds()
			cost = k.Peak.Seconds() * math.Exp(-idle) * float64(k.InFlight+1)
		case k.InFlight > 0:
			cost = peakPenalty * float64(k.InFlight)
		}
		switch {
		case cost < least:
			best, equal, least = i, 1, cost
		case cost == least:
			if equal++; p.rnd.IntN(equal) == 0 {
				best = i
			}
		}
	}
	return best
}
