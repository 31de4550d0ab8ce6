//penstock:pure

package backoff

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Ladder is a policy with an interval for each step. A jitter mode draws the wait from the
// interval, and a cap bounds the wait. [Fixed], [Linear], [Exponential], [Polynomial], [Fibonacci],
// [Table], [Pattern] and [Recommended] return a Ladder. The methods Full, Equal, Proportional,
// Additive and Plain return a copy with another jitter mode. Every wait of the zero Ladder is 0.
type Ladder struct {
	// The ladder does not change after construction. Since a Ladder is a single pointer, converting
	// it to a Policy copies and allocates nothing.
	p *ladder
}

type ladder struct {
	growth growth
	jitter jitter
	max    time.Duration // cap on every wait; 0 means none; negative is invalid and means none, too
	rungs  []rung        // the first steps, ready to draw from
	last   uint32        // rung that all later steps share; MaxUint32 if there is none

	invalid error // the result of Validate, computed once because every retry needs it
}

// rung is the range from which a step draws: the n waits lo, lo+1, ..., lo+n-1, in nanoseconds. n
// is at least 1.
type rung struct{ lo, n uint64 }

// maxRungs is the maximum number of steps that a Ladder computes in advance. An exponential ladder
// usually reaches its cap earlier. Later steps, such as those of a long table, are computed when
// they are needed.
const maxRungs = 64

// growth is the rule for the interval of step n, before the cap is applied.
type growth interface {
	interval(n uint32) (d time.Duration, ok bool) // ok false: the ladder ends before n
	// constantFrom reports whether all steps from n on have the interval of n.
	constantFrom(n uint32) bool
	validate(max time.Duration) error
	spec() string // name and keys as Parse reads them, without max and jitter
}

func newLadder(g growth, j jitter, max time.Duration) Ladder {
	p := &ladder{growth: g, jitter: j, max: max, last: math.MaxUint32}
	for n := range uint32(maxRungs) {
		r, ok := p.rung(n)
		if !ok {
			break
		}
		p.rungs = append(p.rungs, r)
		if d, _ := g.interval(n); max > 0 && d >= max || g.constantFrom(n) {
			p.last = n
			break
		}
	}
	p.invalid = p.validate()
	return Ladder{p}
}

func (p *ladder) validate() error {
	if p.max < 0 {
		return fmt.Errorf("max %v is negative; 0 means no cap", p.max)
	}
	return errors.Join(p.growth.validate(p.cap()), p.jitter.validate())
}

func (p *ladder) cap() time.Duration {
	if p.max <= 0 {
		return math.MaxInt64
	}
	return p.max
}

// rung computes the range from which step n draws.
func (p *ladder) rung(n uint32) (rung, bool) {
	d, ok := p.growth.interval(n)
	if !ok {
		return rung{}, false
	}
	lo, hi := p.jitter.spread(d, p.cap())
	return rung{uint64(lo), uint64(hi-lo) + 1}, true
}

// at returns the range from which step n draws. It reports false if the ladder ends before n.
func (p *ladder) at(n uint32) (rung, bool) {
	if p == nil {
		return rung{0, 1}, true
	}
	if i := min(n, p.last); int64(i) < int64(len(p.rungs)) {
		return p.rungs[i], true
	}
	return p.rung(n)
}

// Next implements Policy. It contains copies of the functions at and draw without their rare cases,
// because calling them would double its cost.
func (l Ladder) Next(s State, src rand.Source) (time.Duration, State, bool) {
	if l.p == nil {
		return 0, s.After(0), true
	}
	i := min(s.N, l.p.last)
	if uint64(i) >= uint64(len(l.p.rungs)) {
		return l.p.far(s, src)
	}
	r := &l.p.rungs[i]
	var hi, lo uint64
	switch {
	case r.n == 1:
		return time.Duration(r.lo), s.After(time.Duration(r.lo)), true
	case src == nil: // a separate branch, so that src is not kept across the call
		if hi, lo = bits.Mul64(runtimeBits(), r.n); lo < r.n {
			hi = drawAgain(nil, r.n, hi, lo)
		}
	default:
		if hi, lo = bits.Mul64(src.Uint64(), r.n); lo < r.n {
			hi = drawAgain(src, r.n, hi, lo)
		}
	}
	d := time.Duration(r.lo + hi)
	return d, s.After(d), true
}

// far is Next for steps that were not computed in advance.
//
//go:noinline
func (p *ladder) far(s State, src rand.Source) (time.Duration, State, bool) {
	r, ok := p.rung(s.N)
	if !ok {
		return 0, s, false
	}
	d := time.Duration(r.lo + draw(src, r.n-1))
	return d, s.After(d), true
}

// Bounds implements Bounder.
func (l Ladder) Bounds(n int) (lowest, mean, highest time.Duration) {
	r, ok := l.p.at(step(n))
	if !ok {
		return 0, 0, 0
	}
	return time.Duration(r.lo), time.Duration(r.lo + (r.n-1)/2), time.Duration(r.lo + r.n - 1)
}

// step converts the n of Bounds to a step; a negative n counts as 0.
func step(n int) uint32 {
	return uint32(min(max(int64(n), 0), math.MaxUint32))
}

// Plain removes the jitter: every wait is the interval itself, at most the cap. Use it for
// schedules and for a single client. Many clients without jitter collide again and again: the time
// until all have succeeded is 7 to 14 times as long as with jitter.
func (l Ladder) Plain() Ladder { return l.with(jitter{}) }

// Full draws each wait from [0, interval], both ends included. Under contention it is the best of
// the simple modes.
func (l Ladder) Full() Ladder { return l.with(jitter{mode: full}) }

// Equal draws each wait from [interval/2, interval]. There is never a very short wait, but clients
// collide more often than with Full.
func (l Ladder) Equal() Ladder { return l.with(jitter{mode: equal}) }

// Proportional draws each wait from [(1-f) * interval, (1+f) * interval], with f in [0, 1]. The
// range ends at the cap: once the interval has reached the cap, waits are drawn from [(1-f) * cap,
// cap].
func (l Ladder) Proportional(f float64) Ladder { return l.with(jitter{proportional, f}) }

// Additive draws each wait from [interval, (1+f) * interval], with an f of 0 or more. The interval
// grows to at most cap/(1+f), so that the jitter is not narrower at the cap.
func (l Ladder) Additive(f float64) Ladder { return l.with(jitter{additive, f}) }

func (l Ladder) with(j jitter) Ladder {
	if l.p == nil {
		return newLadder(fixedGrowth(0), j, 0)
	}
	return newLadder(l.p.growth, j, l.p.max)
}
