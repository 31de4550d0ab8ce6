//penstock:pure

package backoff

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

type jitterMode uint8

const (
	none jitterMode = iota
	full
	equal
	proportional
	additive
)

var jitterNames = [...]string{none: "none", full: "full", equal: "equal",
	proportional: "proportional", additive: "additive"}

// jitter is the rule for drawing a wait from an interval.
type jitter struct {
	mode  jitterMode
	width float64 // width of proportional and additive jitter, as a share of the interval
}

// spread returns the lowest and the highest wait of an interval of length d. Both are in [0,
// limit]. A d above limit counts as limit. With additive jitter, a d above limit/(1+width) counts
// as limit/(1+width), so that the relative width of the range is the same at the limit as below it.
func (j jitter) spread(d, limit time.Duration) (lo, hi time.Duration) {
	d = min(max(d, 0), limit)
	switch j.mode {
	case full:
		return 0, d
	case equal:
		return d / 2, d
	case proportional:
		w := min(scale(d, j.share()), d)
		return d - w, min(plus(d, w), limit)
	case additive:
		f := j.share()
		d = min(d, scale(limit, 1/(1+f)))
		return d, min(plus(d, scale(d, f)), limit)
	}
	return d, d
}

// share returns the width of the jitter, relative to the interval. The result is at most
// MaxFloat32. It is 0 if the width is negative or NaN.
func (j jitter) share() float64 {
	if j.width > 0 {
		return min(j.width, math.MaxFloat32)
	}
	return 0
}

func (j jitter) validate() error {
	switch {
	case j.mode == proportional && !(j.width >= 0 && j.width <= 1):
		return fmt.Errorf("width %v of proportional jitter: want 0 to 1", j.width)
	case j.mode == additive && !(j.width >= 0 && j.width <= math.MaxFloat32):
		return fmt.Errorf("width %v of additive jitter: want 0 or more, and finite", j.width)
	}
	return nil
}

// spec returns the jitter in the form that Parse reads, with a leading space, or "" for none.
func (j jitter) spec() string {
	switch j.mode {
	case none:
		return ""
	case proportional, additive:
		return " jitter=" + jitterNames[j.mode] + " width=" +
			strconv.FormatFloat(j.width, 'g', -1, 64)
	}
	return " jitter=" + jitterNames[j.mode]
}
