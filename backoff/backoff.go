// Package backoff says how long to wait before trying again.
//
// A [Policy] is an immutable value, safe for concurrent use; what changes from wait to wait is a small
// [State] that its owner keeps, per message if need be. Randomness comes in as a rand.Source, time never
// does: the package waits for nothing and reads no clock.
package backoff

import (
	"math/rand/v2"
	"time"
)

// State is a place in a sequence of waits. Its zero value is the start. 24 bytes: store it with the message.
type State struct {
	N     uint32        // waits so far
	Step  uint32        // of the policy itself, where it differs from N (Then, FirstNow)
	Prev  time.Duration // the last wait
	Slept time.Duration // sum of the waits, saturating
}

// Policy is a rule for waits.
type Policy interface {
	// Next returns the wait after the failure that s counts, and the state that follows; false: give up. src
	// nil means the runtime's source. d is never negative.
	Next(s State, src rand.Source) (d time.Duration, next State, ok bool)
}
