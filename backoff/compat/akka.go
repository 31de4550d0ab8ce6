//penstock:pure

package compat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Akka is the ExponentialBackOff of R. Roestenburg's BackOffSender: slot * (2^e - 1). e is an
// integer uniform in [0, slot number]. The slot number counts the failures in a row, from 1. So a
// wait is 0, 1, 3, 7, ... slots, and never another number of slots.
//
// Quirk: when the slot number reaches the ceiling, the wait is 0, and the slot number starts over.
// With a ceiling of 10, the 10th failure in a row is retried at once, and the longest wait is 511
// slots. With StayAtCeiling the slot number stays at the ceiling, and the longest wait is 1023
// slots. [AkkaDefaults] has the article's settings.
type Akka struct {
	Slot time.Duration // 0 means that every wait is 0
	// Ceiling is the slot number at which the wait is 0 and the slot number starts over. If it is 1
	// or less, every wait is 0, unless StayAtCeiling is set.
	Ceiling       int
	StayAtCeiling bool
}

// AkkaDefaults returns the article's settings: slots of 10 ms, a ceiling of 10.
func AkkaDefaults() Akka { return Akka{Slot: 10 * time.Millisecond, Ceiling: 10} }

// AkkaState holds the original's counters after the call of step n.
type AkkaState struct {
	Retries, TotalRetries, Resets uint64
	Started                       bool // Retries is above 0
}

// slotNumber returns the slot number of step n. It returns 0 if the wait of the step is always 0,
// for example because the slot number has reached the ceiling and starts over.
func (p Akka) slotNumber(n uint32) uint64 {
	switch {
	case p.StayAtCeiling && n == 0:
		return 1
	case p.StayAtCeiling:
		return min(uint64(n)+1, uint64(max(p.Ceiling, 0)))
	}
	return (uint64(n) + 1) % uint64(max(p.Ceiling, 1))
}

func (p Akka) wait(e uint64) time.Duration {
	if e > 62 {
		return scaled(math.MaxInt64, p.Slot)
	}
	return scaled(1<<e-1, p.Slot)
}

// Next implements backoff.Policy.
func (p Akka) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	var d time.Duration
	if k := p.slotNumber(s.N); k > 0 {
		d = p.wait(below(src, k+1))
	}
	return d, s.After(d), true
}

// Counters returns the original's counters after the call of step n.
func (p Akka) Counters(n uint32) AkkaState {
	ceiling, calls := uint64(max(p.Ceiling, 1)), uint64(n)+1
	if p.StayAtCeiling {
		return AkkaState{Retries: calls, TotalRetries: calls, Started: true}
	}
	resets, retries := calls/ceiling, calls%ceiling
	return AkkaState{retries, calls - resets, resets, retries > 0}
}

// Bounds implements backoff.Bounder.
func (p Akka) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := p.slotNumber(step(n))
	if k == 0 || p.Validate() != nil {
		return 0, 0, 0
	}
	sum := 0.0
	for e := range min(k, 100) + 1 { // beyond 62 all are saturated
		sum += float64(p.wait(e))
	}
	if k > 100 {
		sum += float64(k-100) * float64(p.wait(100))
	}
	highest = p.wait(k)
	return 0, min(time.Duration(javaLong(sum/float64(k+1))), highest), highest
}

// Validate implements backoff.Validator.
func (p Akka) Validate() error {
	if p.Slot < 0 {
		return fmt.Errorf("slot %v is negative", p.Slot)
	}
	return nil
}
