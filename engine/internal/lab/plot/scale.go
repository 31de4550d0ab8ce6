//penstock:pure

package plot

import "math"

// scale maps the values of an axis to the interval [0, 1].
type scale struct {
	axis   Axis
	lo, hi float64
}

// largest limits the range of an axis. newScale ignores values with a larger absolute value and, on
// a logarithmic axis, values below 1/largest. With them, the computation of ticks would overflow.
const largest = 1e200

// newScale returns a scale that fits values. If zero is set, a linear axis includes 0.
func newScale(a Axis, values []float64, zero bool) scale {
	s := scale{axis: a, lo: math.Inf(1), hi: math.Inf(-1)}
	for _, v := range values {
		if math.IsNaN(v) || math.Abs(v) > largest || a.Log && v < 1/largest {
			continue
		}
		s.lo, s.hi = min(s.lo, v), max(s.hi, v)
	}
	if s.lo > s.hi {
		s.lo, s.hi = 0, 1
		if a.Log {
			s.lo = .1
		}
		return s
	}
	if a.Log {
		if zero {
			s.lo /= 1.5 // keep the lowest value visible above the axis
		}
		s.lo = roundDown(s.lo)
		s.hi = max(s.hi*1.15, s.lo*10)
		return s
	}
	if zero {
		s.lo = min(s.lo, 0)
	}
	if s.hi == s.lo {
		s.hi = s.lo + 1
	}
	if zero {
		s.hi += (s.hi - s.lo) * .04
	}
	return s
}

// place returns the position of v, limited to [0, 1].
func (s scale) place(v float64) float64 {
	if s.axis.Log {
		if v <= s.lo {
			return 0
		}
		v = math.Log(v/s.lo) / math.Log(s.hi/s.lo)
	} else {
		v = (v - s.lo) / (s.hi - s.lo)
	}
	if !(v > 0) { // also true for NaN
		return 0
	}
	return min(v, 1)
}

// ticks returns about five round values on the scale.
func (s scale) ticks() (list []float64) {
	if s.axis.Log {
		decades := math.Log10(s.hi / s.lo)
		between := []float64{1, 2, 5}
		if decades > 2.2 {
			between = between[:1]
		}
		jump := math.Pow(10, math.Ceil(decades/6))
		for v := math.Pow(10, math.Floor(math.Log10(s.lo)+1e-9)); v <= s.hi; v *= jump {
			for _, m := range between {
				if v*m >= s.lo*.9999 && v*m <= s.hi {
					list = append(list, v*m)
				}
			}
		}
		return list
	}
	step := round((s.hi - s.lo) / 5)
	if s.axis.Time {
		step = roundTime((s.hi - s.lo) / 5)
	}
	if s.axis.Whole {
		step = max(math.Round(step), 1)
	}
	for i := math.Ceil(s.lo/step - 1e-9); i*step <= s.hi+step*1e-9; i++ {
		list = append(list, i*step+0) // + 0 turns -0 into 0
	}
	return list
}

// roundDown returns the largest number that is 1, 2 or 5 times a power of ten and not above x.
func roundDown(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)+1e-9))
	for _, m := range []float64{5, 2} {
		if x >= unit*m*(1-1e-9) {
			return unit * m
		}
	}
	return unit
}

// roundTime rounds up a number of seconds, for the step between two ticks. Up to one second, its
// results are those of the function round. Above, they are round numbers of seconds, minutes, hours
// or days.
func roundTime(x float64) float64 {
	if x <= 1 {
		return round(x)
	}
	for _, s := range []float64{2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
		6 * 3600, 12 * 3600, 86400} {
		if x <= s {
			return s
		}
	}
	return round(x/86400) * 86400
}

// round returns the smallest number that is 1, 2 or 5 times a power of ten and not below x.
func round(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if x <= unit*m*(1+1e-9) {
			return unit * m
		}
	}
	return unit * 10
}
