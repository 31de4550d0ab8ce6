//penstock:pure

package compat

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Akka is the ExponentialBackOff of R. Roestenburg's BackOffSender: slot * (2^e - 1) with e an integer uniform in
// [0, slot number], the slot number counting up from 1. The waits are 0, 1, 3, 7, ... slots, not every number of them.
//
// Quirk: when the slot number reaches the ceiling, that call costs nothing and starts over, so the 10th failure in a
// row is retried at once and the longest wait is 511 slots; with StayAtCeiling it goes on at the ceiling, up to 1023.
type Akka struct {
	Slot          time.Duration // 0 means 10 ms
	Ceiling       int           // 0 means 10
	StayAtCeiling bool
}

// AkkaState is what the original's counters read after the call of step n.
type AkkaState struct {
	Retries, TotalRetries, Resets uint64
	Started                       bool // Retries is above 0
}

func (p Akka) settings() (slot time.Duration, ceiling uint64) {
	slot, ceiling = p.Slot, uint64(max(p.Ceiling, 0))
	if slot == 0 {
		slot = 10 * time.Millisecond
	}
	if ceiling == 0 {
		ceiling = 10
	}
	return max(slot, 0), ceiling
}

// slotNumber returns the slot number that step n draws from; 0: the call resets.
func (p Akka) slotNumber(n uint32) uint64 {
	_, ceiling := p.settings()
	if p.StayAtCeiling {
		return min(uint64(n)+1, ceiling)
	}
	return (uint64(n) + 1) % ceiling
}

func (p Akka) wait(e uint64) time.Duration {
	slot, _ := p.settings()
	if e > 62 {
		return scaled(math.MaxInt64, slot)
	}
	return scaled(1<<e-1, slot)
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

// Counters returns what the original's counters read after the call of step n.
func (p Akka) Counters(n uint32) AkkaState {
	_, ceiling := p.settings()
	calls := uint64(n) + 1
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
	var faults []error
	if p.Slot < 0 {
		faults = append(faults, fmt.Errorf("slot %v is negative", p.Slot))
	}
	if p.Ceiling < 0 {
		faults = append(faults, fmt.Errorf("ceiling %d is negative", p.Ceiling))
	}
	return errors.Join(faults...)
}
