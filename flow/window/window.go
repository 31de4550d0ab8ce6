//penstock:pure

// Package window limits what is in flight to one worker.
//
// A [Window] is told what is sent and what comes back, and says how much may be in flight. It is
// pure: time comes in as an argument; it is not safe for concurrent use; its owner is the machine
// in package control. One [Algorithm] makes one Window for each worker.
package window

import "time"

// State of a worker as its window sees it.
type State uint8

// The states.
const (
	Unknown   State = iota // no verdict yet
	Normal                 // answers within the threshold: the window grows
	Slow                   // answers beyond it: the window shrinks
	Busy                   // a timeout or failure: shrunk at once
	Probing                // one item is out to see whether it is back, or to measure its drained round trip
	Open                   // left alone after failures
	Throttled              // closed until Retry-After
)

var stateNames = [...]string{"UNKNOWN", "NORMAL", "SLOW", "BUSY", "PROBING", "OPEN", "THROTTLED"}

// String gives the state as people and metrics see it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "INVALID"
}

// MarshalText gives String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Algorithm is the configuration of a kind of window. It is immutable and safe for concurrent use.
type Algorithm interface {
	Name() string    // as in a config: "linear", "fixed"
	Validate() error // names the invalid setting
	New() Window     // for one worker
}

// Sample is one answered attempt, never a retry sequence.
type Sample struct {
	Now            time.Duration // when it was answered
	RoundTrip      time.Duration
	Normal         time.Duration // RoundTrip as an item of the worker's mean cost would have had it; 0: the same as RoundTrip
	Cost           float64       // of the item
	Mean           float64       // cost of the worker's items on the average; 0: the same as Cost
	InFlightAtSend float64       // cost in flight at this worker just after it was sent, overdue attempts included
	Lost           float64       // of that, what later answers had overtaken by long, so that it is probably lost
	Suspects       int           // attempts out now of which the same holds
	Done           float64       // cost that the worker delivered from its sending on, itself included; 0: not known
	Limited        bool          // the window was the limit when it was sent
	Late           bool          // it had been given up as timed out
	Epoch          uint32        // of the window when it was sent (Window.Epoch)
	Advert         Advert        // what the worker says of itself
}

// Advert is what a worker says with an answer of the window that it grants.
type Advert struct {
	Valid    bool
	Credit   uint64        // absolute, cumulative: the cost that it will have taken from us at most, since it began
	Taken    uint64        // the cost that it has taken from us since it began; 0: not said
	Batches  bool          // all of that is in batches, whatever they cost
	QueueLen int           // cost waiting at the worker
	Wait     time.Duration // of this batch in the worker's queue
}

// normal returns the size-normalised round trip in seconds.
func (s *Sample) normal() float64 {
	if s.Normal > 0 {
		return s.Normal.Seconds()
	}
	return s.RoundTrip.Seconds()
}

// ahead is InFlightAtSend in batches of mean cost.
func (s *Sample) ahead() float64 {
	if s.Mean > 0 {
		return s.InFlightAtSend / s.Mean
	}
	if s.Cost > 0 {
		return s.InFlightAtSend / s.Cost
	}
	return 1
}

// present is what of ahead is likely to have been at the worker.
func (s *Sample) present() float64 {
	if s.InFlightAtSend <= 0 || s.Lost <= 0 {
		return s.ahead()
	}
	return s.ahead() * max(s.Cost, s.InFlightAtSend-s.Lost) / s.InFlightAtSend
}

// pace is how many batches of mean cost a second the worker delivered while it was out; 0: not
// known.
func (s *Sample) pace() float64 {
	switch {
	case s.Done <= 0 || s.RoundTrip <= 0:
		return 0
	case s.Mean > 0:
		return s.Done / s.Mean / s.RoundTrip.Seconds()
	case s.Cost > 0:
		return s.Done / s.Cost / s.RoundTrip.Seconds()
	}
	return 0
}

// batches is what it counts as, in batches of mean cost.
func (s *Sample) batches() float64 {
	if s.Mean > 0 {
		return s.Cost / s.Mean
	}
	return 1
}

// drained says whether the worker had nothing else of ours when the item was sent.
func (s *Sample) drained() bool { return s.InFlightAtSend <= s.Cost*1.000001 }

// overtaken says whether something else came back while it was out, and first that nothing did.
func (s *Sample) overtaken() bool { return s.Done > s.Cost*1.000001 }
func (s *Sample) first() bool     { return s.Done > 0 && !s.overtaken() }

// Window is the limit of one worker.
type Window interface {
	// Limit is the most that may be in flight now, at least 1, in batches. Each counts as one if
	// Batches is true, else as its cost divided by its worker's mean cost.
	Limit() float64
	Batches() bool
	OnSample(s Sample)                         // delivered
	OnTimeout(now time.Duration, cost float64) // overdue
	OnNack(now time.Duration, cost float64)    // retryable answer
	OnUndo(now time.Duration)                  // a timeout was spurious: the late ack arrived
	Reset(now time.Duration)                   // the worker restarted or its breaker closed: start over at the floor
	State() State
	Reason() string // the figures of the last verdict, in words
	Epoch() uint32  // changes when samples sent before must not be judged by the state after
}

// Discarder is a Window that can discard the current round, because this process was delayed and
// not its worker.
type Discarder interface {
	Window
	Discard(now time.Duration) // starts a new round
}

// Starter is a Window with a start-up phase, in which it grows faster than round trips show the
// effect.
type Starter interface {
	Window
	Starting() bool // reports whether it is in its start-up phase
	// Refused narrows the window to level batches, above which the worker refuses.
	Refused(now time.Duration, level float64)
}

// Prober is a Window that measures its worker's round trip without a queue from time to time, by a
// drained probe. Its owner starts the probes: with jitter, and for few workers at once.
type Prober interface {
	Window
	// ProbeWithin returns the wanted time from the last probe, or from the first sample, to the next
	// probe. Zero means that none is wanted. It is shorter while the base round trip is provisional.
	ProbeWithin() time.Duration
	BeginProbe(now time.Duration) // narrows the window until enough samples have come back
	EndProbe(now time.Duration)   // ends a probe early
	Probing() bool                // reports whether a probe is under way
	Base() time.Duration          // the round trip without a queue; 0 if not known yet
}
