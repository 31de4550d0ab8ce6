//penstock:pure

// Package window limits the batches in flight to one worker.
//
// Choose an [Algorithm] by the worker: [Queue] in general, [Credit] if the worker reports its
// capacity, [AIMD] if the worker is shared with unknown senders, [Fixed] if its limit is known. A
// caller reports deliveries, failures and timeouts to a [Window]. The Window returns the number of
// batches that may be in flight.
//
// An Algorithm creates one Window for each worker. A Window is pure: time is an argument. It is
// not safe for concurrent use. In package flow, the state machine in flow/control owns it. The
// package runs under testing/synctest.
//
// # Terms
//
// A worker is drained while no batch of this sender waits in its queue. The base is the mean round
// trip of the drained worker. A probe narrows the window for a short time, so that the worker
// drains and the base can be measured. The bandwidth-delay product (BDP) is the number of batches
// in flight that do not wait in the worker's queue.
//
// Each delivered attempt gives a sample, with its round trip. Samples are collected in rounds. At
// the end of a round, a verdict decides whether the window grows, shrinks or keeps its size. A
// nack is the answer that an attempt has failed and may be repeated. The start-up is the first
// phase of a window, in which it grows fast until the worker is full.
package window

import "time"

// State is the state of a worker, as measured by its window.
type State uint8

// The states.
const (
	Unknown State = iota // no verdict yet
	Normal               // answers within the threshold: the window grows
	Slow                 // answers above the threshold: the window shrinks
	Busy                 // a timeout or failure: the window shrinks at once
	// Probing means that few items may be in flight, to test the worker or to measure its drained
	// round trip.
	Probing
	Open      // paused after failures
	Throttled // closed until Retry-After
)

var stateNames = [...]string{"UNKNOWN", "NORMAL", "SLOW", "BUSY", "PROBING", "OPEN", "THROTTLED"}

// String returns the state as shown to users and in metrics.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "INVALID"
}

// MarshalText returns String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Algorithm is the configuration of a kind of window. It is immutable and safe for concurrent use.
type Algorithm interface {
	Name() string    // name in configs, such as "linear"
	Validate() error // names the invalid setting
	New() Window     // returns a window for one worker
}

// Sample has the measurements of one attempt that delivered its item, or a part of it.
type Sample struct {
	Now       time.Duration // when it was answered
	RoundTrip time.Duration
	// Normal is RoundTrip, converted to an item of the worker's mean cost. 0 means equal to
	// RoundTrip.
	Normal time.Duration
	Cost   float64 // cost of the item
	Mean   float64 // mean cost of the worker's items; 0 means equal to Cost
	// InFlightAtSend is the cost in flight at this worker just after the item was sent, including
	// overdue attempts.
	InFlightAtSend float64
	// Lost is the part of InFlightAtSend that is probably lost, because attempts that were sent
	// later were answered long ago.
	Lost         float64
	PresumedLost int // attempts in flight now that are probably lost
	// If bad data makes some batches hang, the limit is widened by their number, because they are
	// no load of the worker. Uncertain is the share of the widened limit that these batches take.
	Uncertain float64
	// Done is the cost that the worker has delivered since the item was sent, including the item. 0
	// means unknown.
	Done    float64
	Limited bool   // the window was the limit when the attempt was sent
	Late    bool   // the attempt had been treated as timed out
	Epoch   uint32 // Window.Epoch when the attempt was sent
	Advert  Advert // the worker's report
}

// Advert is the window that a worker grants with an answer.
type Advert struct {
	Valid bool
	// Credit is a total: the cost that the worker has accepted from this sender since its start,
	// plus the cost that it can still take. Since it is a total, lost advertisements do no harm.
	Credit   uint64
	Taken    uint64        // the accepted part of Credit; 0 if not reported
	Cost     uint64        // its own price of this batch; 0 if it counts the sender's cost
	Batches  bool          // all counts are in batches, not in cost
	QueueLen int           // cost waiting at the worker
	Wait     time.Duration // time of this batch in the worker's queue
	// WaitKnown reports whether the worker reports Wait. If not, the window needs probes to measure
	// the round trip without a queue.
	WaitKnown bool
}

// normal returns the size-normalized round trip in seconds.
func (s *Sample) normal() float64 {
	if s.Normal > 0 {
		return s.Normal.Seconds()
	}
	return s.RoundTrip.Seconds()
}

// ahead returns InFlightAtSend as a number of batches of mean cost, or 1 if no cost is known.
func (s *Sample) ahead() float64 {
	if s.Mean > 0 {
		return s.InFlightAtSend / s.Mean
	}
	if s.Cost > 0 {
		return s.InFlightAtSend / s.Cost
	}
	return 1
}

// present returns the number of batches that were at the worker when the attempt was sent (see
// ahead), without those that are probably lost.
func (s *Sample) present() float64 {
	if s.InFlightAtSend <= 0 || s.Lost <= 0 {
		return s.ahead()
	}
	return s.ahead() * max(s.Cost, s.InFlightAtSend-s.Lost) / s.InFlightAtSend
}

// pace returns the batches of mean cost per second that the worker delivered while the attempt was
// in flight; 0 if unknown.
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

// batches returns the cost of the item in batches of mean cost.
func (s *Sample) batches() float64 {
	if s.Mean > 0 {
		return s.Cost / s.Mean
	}
	return 1
}

// drained reports whether the worker's queue was certainly empty when the batch was sent, because
// the worker had no other batch of this sender.
func (s *Sample) drained() bool { return s.InFlightAtSend <= s.Cost*1.000001 }

// overtaken reports whether another item came back while this one was in flight.
func (s *Sample) overtaken() bool { return s.Done > s.Cost*1.000001 }
func (s *Sample) first() bool     { return s.Done > 0 && !s.overtaken() }

// Window is the limit of one worker.
type Window interface {
	// Limit returns the maximum number of batches in flight now, at least 1. If Batches is true,
	// each batch counts as one. Otherwise it counts as its cost divided by its worker's mean cost.
	Limit() float64
	Batches() bool
	OnSample(s Sample)                         // records a delivery
	OnTimeout(now time.Duration, cost float64) // records that an attempt is overdue
	OnNack(now time.Duration, cost float64)    // records a retryable answer
	OnUndo(now time.Duration)                  // undoes a timeout, because a late ack has arrived
	// Reset starts over at the minimum window. The owner calls it after the worker has restarted or
	// its breaker (the pause after failures) has closed.
	Reset(now time.Duration)
	State() State
	Reason() string // returns the figures of the last verdict as text
	Epoch() uint32  // changes when samples sent before must not affect the new state
}

// Discarder is a Window that can discard the samples of the current round. The owner of the Window
// does so after the owner's process was delayed.
type Discarder interface {
	Window
	Discard(now time.Duration) // starts a new round
}

// Starter is a Window with a start-up phase. In this phase the window grows fast, so its last step
// may exceed what the worker can serve.
type Starter interface {
	Window
	Starting() bool // reports whether it is in its start-up phase
	// Refused narrows the window to level batches, above which the worker refuses.
	Refused(now time.Duration, level float64)
}

// Prober is a Window that from time to time needs a probe: a measurement of its worker's round trip
// without a queue. Its owner starts the probes, with jitter and for few workers at once.
type Prober interface {
	Window
	// ProbeWithin returns the wanted interval between probes. The first interval counts from the
	// first sample. Zero means no probe. The interval is shorter while the base round trip is known
	// from few samples only.
	ProbeWithin() time.Duration
	BeginProbe(now time.Duration) // narrows the window until enough samples have come back
	EndProbe(now time.Duration)   // ends a probe early
	Probing() bool                // reports whether a probe is under way
	Base() time.Duration          // the round trip without a queue; 0 if not known yet
}
