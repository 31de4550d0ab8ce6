package supervise

import "time"

// Kind says what an Event reports.
type Kind uint8

// The kinds of events.
const (
	Started   Kind = iota // an incarnation starts
	Ended                 // an incarnation has returned: Err, Ran, and Delay where it will be restarted
	Stopping              // a child's context has ended: Err is the cause
	Stuck                 // a child has not returned within its Shutdown
	Paused                // Spec.Decay: no restart before Delay has passed
	Resumed               // Spec.Decay: the pause is over
	Escalated             // the supervisor gives up: Err is what Serve will return
)

// String returns the name.
func (k Kind) String() string {
	return nameOf(k, "started", "ended", "stopping", "stuck", "paused", "resumed", "escalated")
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// An Event tells what a supervisor saw or decided. Fields that a kind does not mention are zero.
type Event struct {
	Time        time.Time
	Kind        Kind
	Supervisor  string // its path: the names from the root, with slashes
	Child       string // empty: the supervisor itself
	Incarnation uint64 // the child's; the first is 1
	Err         error
	Ran         time.Duration // how long the incarnation lived
	Restart     bool          // it will be started again
	Delay       time.Duration // no sooner than after this; the stagger may add to it
}
