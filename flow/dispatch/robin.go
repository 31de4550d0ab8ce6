//penstock:pure

package dispatch

import (
	"math/rand/v2"
	"time"
)

// RoundRobin asks each lane in turn; one that is not free is passed over (system D).
type RoundRobin struct{}

// Name returns "round_robin".
func (RoundRobin) Name() string { return "round_robin" }

// New returns a chooser. It takes nothing from src.
func (RoundRobin) New(rand.Source) Chooser { return &roundRobin{last: -1} }

type roundRobin struct{ last int32 } // lane number that had the last item

func (r *roundRobin) Choose(_ time.Duration, _ float64, _ uint64, c []Candidate) int {
	first := -1
	for i := range c {
		switch {
		case !c[i].Free:
		case c[i].Lane > r.last:
			r.last = c[i].Lane
			return i
		case first < 0:
			first = i
		}
	}
	if first >= 0 {
		r.last = c[first].Lane
	}
	return first
}
