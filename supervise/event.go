package supervise

import "time"

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	Started   Kind = iota // a child is started
	Ended                 // a child has returned: Err, Ran, and if Restart is true, Delay
	Stopping              // a child's context has ended: Err is the cause
	Stuck                 // a child has not returned within its Shutdown: Ran
	Paused                // Spec.Decay: all restarts wait for Delay
	Resumed               // Spec.Decay: the pause is over
	Escalated             // the supervisor gives up: Err is the *EscalatedError
)

// String returns the name, such as "started".
func (k Kind) String() string {
	return nameOf(k, "started", "ended", "stopping", "stuck", "paused", "resumed", "escalated")
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// An Event is one change of state. Err, Ran, Restart and Delay are zero unless the comment of the
// Kind mentions them.
type Event struct {
	Time        time.Time
	Kind        Kind
	Supervisor  string // path: the names from the root, separated by slashes
	Child       string // "" for Paused and Resumed
	Incarnation uint64 // counts the child's starts from 1; 0 for Paused, Resumed and Escalated
	Err         error
	Ran         time.Duration // time since the start of the incarnation
	Restart     bool          // the child will be restarted
	Delay       time.Duration // before the restart; Spec.Stagger and Spec.Strategy may add to it
}
