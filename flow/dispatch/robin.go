//penstock:pure

package dispatch

import (
	"math/rand/v2"
	"time"
)

// RoundRobin uses one lane after the other and skips lanes that are not free. The flow control
// built on Storm, which docs/flow-control.md calls system D, uses it.
type RoundRobin struct{}

// Name returns "round_robin".
func (RoundRobin) Name() string { return "round_robin" }

// New returns a chooser. It does not use src.
func (RoundRobin) New(rand.Source) Chooser { return &roundRobin{last: -1} }

type roundRobin struct{ last int32 } // lane number of the last item

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
