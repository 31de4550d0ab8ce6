//penstock:pure

package compat

import (
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// KubernetesWait gives the waits that successive calls of wait.Backoff.Step return (package wait of
// k8s.io/apimachinery v0.37): Duration * Factor^n while Steps remain, then the same wait forever.
//
// Quirks: The jitter is U[0, 1) * Jitter times the capped wait. It is added to that wait, so the
// sum may exceed Cap. If Duration is above Cap, the first wait is Duration. When the interval would
// exceed Cap, Steps falls to 0, which ends ExponentialBackoff early (see [KubernetesWait.Loop]).
// Without a Cap the interval overflows to the lowest int64, a hot loop (Compat only).
type KubernetesWait struct {
	Duration time.Duration
	Factor   float64 // 0 means 1
	Jitter   float64 // 0 means none
	Steps    int
	Cap      time.Duration // 0 means none
	Compat   bool
}

// grow returns the wait that follows d, and whether it was cut to Cap.
func (p KubernetesWait) grow(d time.Duration) (next time.Duration, capped bool) {
	if p.Factor == 0 {
		return d, false
	}
	x := float64(float64(d) * p.Factor)
	if next = time.Duration(amd64Long(x)); !p.Compat {
		next = time.Duration(javaLong(x))
	}
	if p.Cap > 0 && next > p.Cap {
		return p.Cap, true
	}
	return next, false
}

// interval returns the wait of step n before jitter, and the steps that are left after it.
func (p KubernetesWait) interval(n uint32) (d time.Duration, left int) {
	d, left = p.Duration, p.Steps
	before := d
	for i := uint32(0); left > 0; i++ {
		wait := d
		left--
		var capped bool
		if d, capped = p.grow(d); capped {
			left = 0
		}
		if i == n {
			return wait, left
		}
		if left > 0 && (d == wait || d == before || i > maxIterations) {
			// From here on the interval stays the same or alternates between d and wait. So skip to
			// step n at once: step i+1 waits d, step i+2 waits wait, step i+3 waits d, and so on.
			if rest := int64(n - i); rest <= int64(left) {
				left -= int(rest)
				if rest%2 == 0 {
					d = wait
				}
				return d, left
			}
			if left%2 == 1 { // after the last step the next wait stays
				d = wait
			}
			return d, 0
		}
		before = wait
	}
	return d, 0
}

// Next implements backoff.Policy like the original's Step, which never ends.
func (p KubernetesWait) Next(s backoff.State,
	src rand.Source) (time.Duration, backoff.State, bool) {
	d, _ := p.interval(s.N)
	if p.Jitter > 0 {
		d = jitter(d, p.Jitter, uniform(src), p.Compat)
	}
	d = clamp(d, p.Compat)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p KubernetesWait) Bounds(n int) (lowest, mean, highest time.Duration) {
	d, _ := p.interval(step(n))
	if p.Jitter <= 0 {
		d = clamp(d, p.Compat)
		return d, d, d
	}
	if p.Compat && wraps(float64(d), float64(d)+p.Jitter*float64(d)) {
		return anything()
	}
	at := func(u float64) time.Duration { return clamp(jitter(d, p.Jitter, u, p.Compat), p.Compat) }
	return ordered(at(0), at(.5), at(largest))
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p KubernetesWait) Validate() error { return nil }

// Loop returns the waits of ExponentialBackoff, which calls a function again and again until the
// function reports success. The waits end when Steps are used up. They end earlier if the interval
// would exceed Cap, because the original then sets Steps to 0.
func (p KubernetesWait) Loop() KubernetesLoop { return KubernetesLoop{p} }

// KubernetesLoop is ExponentialBackoff of apimachinery: see [KubernetesWait.Loop].
//
// Quirk: if the cap ends the loop, the original waits once more after its last call: see Wasted.
type KubernetesLoop struct{ wait KubernetesWait }

// Next implements backoff.Policy.
func (p KubernetesLoop) Next(s backoff.State,
	src rand.Source) (time.Duration, backoff.State, bool) {
	if _, left := p.wait.interval(s.N); left < 1 {
		return 0, s, false
	}
	d, _, _ := p.wait.Next(s, src)
	d = max(d, 0) // time.Sleep
	return d, s.After(d), true
}

// Wasted returns the useless wait of the original after its last call, without jitter. It is 0
// unless the cap ended the loop.
func (p KubernetesLoop) Wasted() time.Duration {
	d := p.wait.Duration
	for range min(max(p.wait.Steps-1, 0), maxIterations) {
		next, capped := p.wait.grow(d)
		if capped {
			return max(d, 0)
		}
		if next == d {
			break
		}
		d = next
	}
	return 0
}

// Bounds implements backoff.Bounder.
func (p KubernetesLoop) Bounds(n int) (lowest, mean, highest time.Duration) {
	if _, left := p.wait.interval(step(n)); left < 1 {
		return 0, 0, 0
	}
	lowest, mean, highest = p.wait.Bounds(n)
	return max(lowest, 0), max(mean, 0), max(highest, 0)
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p KubernetesLoop) Validate() error { return nil }

// KubernetesJitter is wait.Jitter: Duration plus U[0, 1) * MaxFactor * Duration.
//
// Quirk: a MaxFactor of 0 or less means 1. It does not turn the jitter off.
type KubernetesJitter struct {
	Duration  time.Duration
	MaxFactor float64
	Compat    bool // whether an overflow wraps, as on amd64
}

// jitter returns the result of the original's wait.Jitter for a given draw (random) from [0, 1).
func jitter(d time.Duration, factor, random float64, compat bool) time.Duration {
	if factor <= 0 {
		factor = 1
	}
	x := float64(float64(random*factor) * float64(d))
	if compat {
		return d + time.Duration(amd64Long(x))
	}
	return plus(d, time.Duration(javaLong(x)))
}

// Next implements backoff.Policy.
func (p KubernetesJitter) Next(s backoff.State,
	src rand.Source) (time.Duration, backoff.State, bool) {
	d := p.at(uniform(src))
	return d, s.After(d), true
}

func (p KubernetesJitter) at(u float64) time.Duration {
	return clamp(jitter(p.Duration, p.MaxFactor, u, p.Compat), p.Compat)
}

// Bounds implements backoff.Bounder.
func (p KubernetesJitter) Bounds(int) (lowest, mean, highest time.Duration) {
	if d := float64(p.Duration); p.Compat && wraps(d, d+max(p.MaxFactor, 1)*d) {
		return anything()
	}
	return ordered(p.at(0), p.at(.5), p.at(largest))
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p KubernetesJitter) Validate() error { return nil }
