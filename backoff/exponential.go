package backoff

import (
	"math/rand/v2"
	"time"
)

// Exp waits base, base*factor, ... up to a cap, with jitter as its mode says.
type Exp struct {
	base, max time.Duration
	factor    float64
	full      bool
}

// Exponential waits base * factor^n, at most max.
func Exponential(base time.Duration, factor float64, max time.Duration) Exp {
	return Exp{base: base, factor: factor, max: max}
}

// Full draws each wait uniformly from [0, the interval].
func (p Exp) Full() Exp { p.full = true; return p }

// Next implements Policy.
func (p Exp) Next(s State, src rand.Source) (time.Duration, State, bool) {
	d := p.base
	for range min(s.N, 64) {
		if f := float64(d) * p.factor; f >= float64(p.max) {
			d = p.max
			break
		} else {
			d = time.Duration(f)
		}
	}
	d = min(d, p.max)
	if p.full {
		if src == nil {
			d = time.Duration(rand.Int64N(int64(d) + 1))
		} else {
			d = time.Duration(rand.New(src).Int64N(int64(d) + 1))
		}
	}
	s.N++
	s.Prev, s.Slept = d, s.Slept+d
	return d, s, true
}
