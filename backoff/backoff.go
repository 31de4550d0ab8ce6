// Package backoff says how long to wait before trying again.
//
// A [Policy] is an immutable value, safe for concurrent use; what changes from wait to wait is a small [State] that
// its owner keeps, per message if need be. Randomness comes in as a rand.Source, time never does: the package waits
// for nothing, reads no clock and starts no goroutine. Package retry does the waiting.
//
// The growing policies ([Fixed], [Linear], [Exponential], [Polynomial], [Fibonacci], [Table], [Pattern]) are one type,
// [Ladder]: an interval for each step, and a jitter mode that says where in it the wait is drawn. [Random], [Slotted],
// [Decorrelated] and [DecorrelatedV2] draw in ways of their own. [Limit], [Then], [Max], [Sum] and [FirstNow] make new
// policies of these. [Recommended] is what to use against contention, and says why. [Parse] reads a policy from text
// and String writes it. Package backoff/compat holds the policies of other libraries, quirks included.
//
// # Rules that hold for every policy here
//
//   - A wait is never negative and never above the policy's cap. A draw is made from the range cut to the cap, so
//     that no share of the draws piles up on it, and the jitter is as wide at the cap as below it.
//   - Arithmetic saturates at the largest time.Duration. No value of a duration means something else: the end of a
//     sequence is the bool of Next.
//   - No input panics. [Validate] says what is wrong with a policy; one that is wrong still waits somehow.
//   - The same seed gives the same waits on every platform. Where a policy has to compute in floats (a factor with a
//     fraction, a degree with a fraction, DecorrelatedV2) they agree within 1 ns for waits up to eleven days.
//
// # Words
//
// An attempt is one call, the first included; a retry is an attempt after the first. Steps count from 0: step 0 is the
// wait after the first failure. So n attempts have n-1 waits between them.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// State is a place in a sequence of waits. Its zero value is the start. 24 bytes: store it with the message.
type State struct {
	N     uint32        // waits so far, which is also the step of the next one; stays at its highest value
	Step  uint32        // what a policy remembers for itself (DecorrelatedV2: where its last draw fell)
	Prev  time.Duration // the last wait
	Slept time.Duration // sum of the waits, saturating; a negative one counts as 0
}

// After returns the state that follows s when the wait was d. Policies of other packages need it in their Next.
func (s State) After(d time.Duration) State {
	if s.N < math.MaxUint32 {
		s.N++
	}
	s.Prev = d
	if s.Slept += max(d, 0); s.Slept < 0 {
		s.Slept = math.MaxInt64
	}
	return s
}

// Policy is a rule for waits: an immutable value that any number of goroutines may use at once.
type Policy interface {
	// Next returns the wait after the failure that s counts, and the state that follows; false: give up, d is 0 and
	// the state unchanged. src is called at most a few times and only from within Next, so a source that is not safe
	// for concurrent use (rand.PCG) belongs to one caller; nil means the runtime's source. d is never negative.
	Next(s State, src rand.Source) (d time.Duration, next State, ok bool)
}

// Validator is what every policy of this package and of compat is besides: Validate names the setting that is wrong.
type Validator interface {
	Validate() error
}

// Validate returns what is wrong with the settings of p, and nil for a policy of another package that has no
// Validate method.
func Validate(p Policy) error {
	if v, ok := p.(Validator); ok {
		return v.Validate()
	}
	return nil
}
