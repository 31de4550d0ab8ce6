//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// Config of a machine. The zero value works: a linear window for each worker, least-completion dispatch,
// timeouts by RFC 6298.
type Config struct {
	Seed     uint64           // of every random choice
	Window   window.Algorithm // makes one window per worker; nil means window.Linear{}
	Dispatch dispatch.Policy  // nil means dispatch.LeastCompletion{}
	Timeout  time.Duration    // of an attempt until its worker counts as BUSY; 0 means RFC 6298 for each worker; negative: none
	Retry    backoff.Policy   // how long an item waits before its next attempt; nil means full jitter from 250 ms to 30 s
	Replay   int64            // bytes in flight, or settled and not yet Saved, at most; one item is always allowed; 0: no bound
	Ahead    int              // items that may wait for a lane without one being free for them; 0 means 64
	Breaker  Breaker
}

// Breaker says when a worker that fails is left alone and how it is tried again. The zero value means the defaults.
type Breaker struct {
	Failures int            // in a row that open it; 0 means 3; negative: it never opens
	Probe    backoff.Policy // how long it stays open before one probe item; nil: see the machine's default
}

// Machine is the sender.
type Machine struct{}

// New checks c and returns a machine without lanes.
func New(c Config) (*Machine, error) { return &Machine{}, nil }

// Step takes one event and appends what is to be done to out.
func (m *Machine) Step(e Event, out []Command) []Command { return out }

// Wake says when Step wants a Tick at the latest; false: only when something happens.
func (m *Machine) Wake() (at time.Duration, ok bool) { return 0, false }

// Room says whether an Offer is welcome now.
func (m *Machine) Room() bool { return true }

// Idle says whether nothing is in flight, waiting, being cut or being buried.
func (m *Machine) Idle() bool { return true }

// Status of the machine and of each lane that is up or still has attempts in flight, in the order of lane numbers.
func (m *Machine) Status() Status { return Status{} }

// Status is a picture of a machine for people and metrics.
type Status struct {
	Waiting       int     // items that wait for a lane or for their next attempt
	WaitingCost   float64 //
	InFlight      int     // items with an attempt in flight
	InFlightCost  float64
	ReplayBytes   int64 // in flight, or settled and not yet Saved
	Settled       uint64
	Attempts      uint64
	Redeliveries  uint64 // attempts but the first of each item
	Duplicates    uint64 // answers that delivered an item a second time
	ReplayBinding bool   // the replay bound closes the gate now
	Lanes         []LaneStatus
}

// LaneStatus is a picture of one lane.
type LaneStatus struct {
	Lane         int32
	Up           bool
	State        window.State  // NORMAL, SLOW, BUSY, PROBING, OPEN, THROTTLED
	Reason       string        // the figures that led there, in words
	Window       float64       // limit now, in the window's unit
	InFlight     int           // attempts not yet answered
	InFlightCost float64       //
	Gate         string        // what binds now: "window", "limit", "throttle", "breaker", "replay", "order", "none"
	RoundTrip    time.Duration // smoothed
	Base         time.Duration // drained
	Timeout      time.Duration // RTO now for an item of mean cost
	Until        time.Duration // OPEN, THROTTLED: when the gate opens, since the sender's start
	Delivered    uint64
	Failed       uint64 // retryable answers
	TimedOut     uint64
	ThrottledN   uint64
	Late         uint64
}
