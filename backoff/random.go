//penstock:pure

package backoff

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// Uniform is the policy that [Random] returns.
type Uniform struct{ limit time.Duration }

// Random returns a policy that draws each wait from [0, max), which excludes max. The waits do not
// grow with the number of failures. So use Random only if the number of contending clients is
// known, and choose max for this number. A max of 0 or less waits 0.
func Random(max time.Duration) Uniform { return Uniform{max} }

// Next implements Policy.
func (p Uniform) Next(s State, src rand.Source) (time.Duration, State, bool) {
	var d time.Duration
	if p.limit > 1 {
		d = time.Duration(draw(src, uint64(p.limit-1)))
	}
	return d, s.After(d), true
}

// Bounds implements Bounder.
func (p Uniform) Bounds(int) (lowest, mean, highest time.Duration) {
	if p.limit <= 1 {
		return 0, 0, 0
	}
	return 0, (p.limit - 1) / 2, p.limit - 1
}

// Validate implements Validator.
func (p Uniform) Validate() error {
	if p.limit < 0 {
		return fmt.Errorf("max %v is negative", p.limit)
	}
	return nil
}

// String returns the policy in the form that Parse reads.
func (p Uniform) String() string { return "random max=" + p.limit.String() }

// Binary is the policy that [Slotted] returns.
type Binary struct {
	slot        time.Duration
	maxExponent uint32
	attempts    uint32
}

// Slotted returns the truncated binary exponential backoff of IEEE 802.3, clause 4.2.3.2.5. After
// collision c it waits r slots. r is an integer uniform in [0, 2^k - 1], with k = min(c,
// maxExponent). Slotted gives up after the given number of attempts (transmissions). 0 attempts
// mean no limit.
//
//	Slotted(51200*time.Nanosecond, 10, 16) // 10 Mb/s: 512 bit times; 15 waits, at most 366.13 ms in all
//	Slotted(51200*time.Nanosecond, 10, 17) // 16 retries: at most 418.51 ms in all
//
// A slot is 5.12 us at 100 Mb/s. Invalid settings count as the nearest valid ones: a negative slot
// as 0, a maxExponent below 0 as 0, a maxExponent above 63 as 63, and a negative number of attempts
// as 1.
func Slotted(slot time.Duration, maxExponent, attempts int) Binary {
	if attempts < 0 {
		attempts = 1
	}
	return Binary{slot, uint32(min(max(maxExponent, 0), 63)), step(attempts)}
}

// exponent returns the number of random bits in r at step n.
func (p Binary) exponent(n uint32) uint32 { return uint32(min(uint64(n)+1, uint64(p.maxExponent))) }

func (p Binary) ended(n uint32) bool { return p.attempts > 0 && uint64(n)+1 >= uint64(p.attempts) }

// Next implements Policy.
func (p Binary) Next(s State, src rand.Source) (time.Duration, State, bool) {
	if p.ended(s.N) {
		return 0, s, false
	}
	var d time.Duration
	if k := p.exponent(s.N); k > 0 {
		d = times(max(p.slot, 0), bits64(src)>>(64-k))
	}
	return d, s.After(d), true
}

// Bounds implements Bounder.
func (p Binary) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.ended(step(n)) {
		return 0, 0, 0
	}
	slot, slots := max(p.slot, 0), uint64(1)<<p.exponent(step(n))-1
	highest = times(slot, slots)
	mean = times(slot, slots/2)
	if slots&1 == 1 {
		mean = plus(mean, slot/2)
	}
	return 0, min(mean, highest), highest
}

// Validate implements Validator.
func (p Binary) Validate() error {
	if p.slot < 0 {
		return fmt.Errorf("slot %v is negative", p.slot)
	}
	return nil
}

// String returns the policy in the form that Parse reads.
func (p Binary) String() string {
	return "slotted slot=" + p.slot.String() + " max_exponent=" +
		strconv.FormatUint(uint64(p.maxExponent), 10) +
		" attempts=" + strconv.FormatUint(uint64(p.attempts), 10)
}
