//penstock:pure

package backoff

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Adaptive computes the interval of a poller that fetches data before it is known whether anybody
// will use it. If the data of the last fetch was used, the interval shrinks. If nobody has used it,
// the interval grows.
//
// The zero value starts at 1 s. After a fetch with unused data it multiplies the interval by 1.5,
// up to 5 min. After a fetch with used data it returns to 1 s. An Adaptive has no state: the caller
// keeps the interval.
type Adaptive struct {
	Min  time.Duration // shortest interval; 0 means 1 s
	Max  time.Duration // longest interval; 0 means 5 min
	Grow float64       // factor after a fetch with unused data, above 1; 0 means 1.5
	// Shrink, in [0, 1), is the factor by which a fetch with used data multiplies the interval.
	// Zero means that the interval returns to Min at once.
	Shrink float64
}

// Next returns the interval until the next poll, within [Min, Max]. The parameter last is the
// previous interval, or 0 at the start. The parameter used reports whether the data of the last
// fetch has been used. To keep many pollers from polling at the same time, draw each wait from the
// policy Fixed(interval).Proportional(0.1), with the interval that Next has returned.
func (a Adaptive) Next(last time.Duration, used bool) time.Duration {
	low, high := a.limits()
	switch {
	case last <= 0:
		return low
	case used:
		return min(max(scale(last, a.Shrink), low), high)
	}
	grow := a.Grow
	if !(grow > 1) {
		grow = 1.5
	}
	return min(max(scale(last, grow), plus(last, 1), low), high)
}

func (a Adaptive) limits() (low, high time.Duration) {
	if low = a.Min; low <= 0 {
		low = time.Second
	}
	if high = a.Max; high <= 0 {
		high = 5 * time.Minute
	}
	return low, max(low, high)
}

// Validate returns an error that names each invalid field.
func (a Adaptive) Validate() error {
	var faults []error
	if a.Min < 0 {
		faults = append(faults, fmt.Errorf("adaptive: Min %v is negative", a.Min))
	}
	if a.Max < 0 {
		faults = append(faults, fmt.Errorf("adaptive: Max %v is negative", a.Max))
	}
	if low := cmp.Or(a.Min, time.Second); low > cmp.Or(a.Max, 5*time.Minute) {
		faults = append(faults,
			fmt.Errorf("adaptive: Max %v is below Min %v", cmp.Or(a.Max, 5*time.Minute), low))
	}
	if a.Grow != 0 && !(a.Grow > 1 && !math.IsInf(a.Grow, 1)) {
		faults = append(faults, fmt.Errorf("adaptive: Grow %v: want above 1, and finite", a.Grow))
	}
	if !(a.Shrink >= 0 && a.Shrink < 1) {
		faults = append(faults,
			fmt.Errorf("adaptive: Shrink %v: want 0 or more and below 1", a.Shrink))
	}
	return errors.Join(faults...)
}
