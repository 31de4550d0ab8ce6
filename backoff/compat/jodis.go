//penstock:pure

package compat

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Jodis is BoundedExponentialBackoffRetryUntilElapsed of jodis 0.5: base * max(1, r) with r an integer uniform in
// [0, 2^min(30, n+1) - 1], at most MaxSleep, and cut so that the last sleep ends exactly at MaxElapsed.
//
// Quirks: the first wait is always exactly Base; the cap comes after the draw, so that the draws pile up on it.
type Jodis struct {
	Base       time.Duration
	MaxSleep   time.Duration
	MaxElapsed time.Duration // below 0: no limit
}

// Decide returns the wait of step n with elapsed gone; false: the time is up, and nothing is slept.
func (p Jodis) Decide(n uint32, elapsed time.Duration, src rand.Source) (time.Duration, bool) {
	left := p.MaxElapsed
	if p.MaxElapsed >= 0 {
		if elapsed >= p.MaxElapsed {
			return 0, false
		}
		left = plus(p.MaxElapsed, -max(elapsed, -1<<62))
	}
	d := p.wait(below(src, 1<<min(uint64(n)+1, 30)))
	if p.MaxElapsed >= 0 {
		d = min(d, left)
	}
	return d, true
}

func (p Jodis) wait(r uint64) time.Duration {
	return min(time.Duration(times(int64(max(p.Base, 0)), int64(max(r, 1)))), max(p.MaxSleep, 0))
}

// Next implements backoff.Policy: the waits are the elapsed time.
func (p Jodis) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d, ok := p.Decide(s.N, s.Slept, src)
	if !ok {
		return 0, s, false
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder. It knows no elapsed time, so it leaves out what MaxElapsed cuts: then the lowest
// is 0.
func (p Jodis) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.MaxElapsed == 0 {
		return 0, 0, 0
	}
	// Curator's, whose cap 0 means none.
	if p.MaxSleep <= 0 {
		return 0, 0, 0
	}
	lowest, mean, highest = Curator{Base: p.Base, MaxSleep: p.MaxSleep}.Bounds(int(min(step(n), 29)))
	if p.MaxElapsed > 0 {
		return 0, min(mean, p.MaxElapsed), min(highest, p.MaxElapsed)
	}
	return lowest, mean, highest
}

// Validate implements backoff.Validator: the original takes everything.
func (p Jodis) Validate() error { return nil }
