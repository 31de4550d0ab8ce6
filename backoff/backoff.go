// Package backoff computes how long to wait before the next attempt.
//
//	policy := backoff.Exponential(100*time.Millisecond, 2, 10*time.Second).Full() // full jitter
//	var state backoff.State
//	for {
//		err := publish(message)
//		if err == nil {
//			return nil
//		}
//		wait, next, ok := policy.Next(state, nil)
//		if !ok {
//			return err // the policy gives up
//		}
//		time.Sleep(wait)
//		state = next
//	}
//
// A [Policy] is an immutable value, safe for concurrent use. The caller keeps the [State], 24 bytes
// that may be stored with each message. Package retry runs this loop, and adds contexts, limits on
// attempts and time, and retry budgets.
//
// # Which policy
//
// Use [Recommended] if many clients contend for one resource. [Fixed], [Linear], [Exponential],
// [Polynomial], [Fibonacci], [Table] and [Pattern] return a [Ladder]: an interval for each step,
// and a jitter mode that draws the wait from it. [Random], [Slotted], [Decorrelated] and
// [DecorrelatedV2] draw in other ways. [Limit], [Then], [Max], [Sum] and [FirstNow] combine
// policies. [Parse] reads a policy from text, and the String method of a policy writes it. Package
// backoff/compat has the policies of other libraries, quirks included.
//
// # Rules for every policy of this package
//
//   - A wait is never negative and never above the policy's cap. If a range extends above the cap,
//     the draw is made from the part of the range below the cap. If each draw above the cap were
//     cut to the cap instead, many waits would equal the cap.
//   - A sum or product that is too large becomes the largest time.Duration. No duration has a
//     special meaning: the bool result of Next reports the end of a sequence.
//   - Invalid settings do not panic. [Validate] returns an error for them. The waits of an invalid
//     policy are undefined, unless its constructor defines them.
//   - The same seed gives the same waits on every platform. For policies that compute in floats (a
//     fractional factor or degree, DecorrelatedV2), the platforms agree within 1 ns for waits up to
//     eleven days.
//   - The package does not sleep, reads no clock and starts no goroutine, so programs that use it
//     run under testing/synctest.
//
// # Terms
//
// An attempt is one call, the first included; a retry is an attempt after the first. Steps count
// from 0: step 0 is the wait after the first failure, so n attempts have n-1 waits between them.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// State is a position in a sequence of waits. The zero value is the start of the sequence. A State
// has 24 bytes, so it can be stored with each message.
type State struct {
	// N is the number of waits so far, at most the largest uint32. It is also the step of the next
	// wait.
	N     uint32
	Step  uint32        // used by some policies (DecorrelatedV2: the last draw)
	Prev  time.Duration // the last wait
	Slept time.Duration // sum of the waits, saturating; a negative wait counts as 0
}

// After returns the state that follows s after a wait of d. Policies outside this package call it
// in their Next.
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
	// Next returns the wait at s, and the state after that wait. d is negative only for policies of
	// package compat with their setting Compat. If ok is false, the policy gives up: d is then 0,
	// and next equals s. A nil src means the runtime's source. src is called only from within Next.
	// A source that is not safe for concurrent use, such as a rand.PCG, must not be shared by
	// concurrent callers.
	Next(s State, src rand.Source) (d time.Duration, next State, ok bool)
}

// Validator is implemented by every policy of this package and of compat. Validate names the
// invalid setting.
type Validator interface {
	Validate() error
}

// Validate returns an error for invalid settings of p. It returns nil for a policy without a
// Validate method.
func Validate(p Policy) error {
	if v, ok := p.(Validator); ok {
		return v.Validate()
	}
	return nil
}
