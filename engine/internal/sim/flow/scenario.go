//penstock:pure

// Package flow runs flow-control scenarios in virtual time against the production machine of package control.
//
// A scenario is a file (see [Load]): workers, network, load, what goes wrong when, and bounds on the figures. A run
// is a function of scenario, algorithm and seed: one thread, one heap of events, and the same figures bit for bit on
// one GOARCH. What is simulated is the world; what decides is the machine that ships. docs/flow-control.md has the
// form and the figures.
package flow

import "time"

// Scenario is one file.
type Scenario struct {
	Path, Name, About string
	Duration          time.Duration
	Warmup            time.Duration // figures that are means or quantiles count from here
	Workers           []Worker
	Service           Service
	RTT, Jitter       time.Duration // of the network; the jitter is the mean of an exponential extra
	Load              Workload
	Size              Size
	Senders           int
	Joins             []time.Duration // by sender; those beyond its end begin at 0
	Events            []Event
	Pauses            Pauses
	Shared            *Worker // one server behind all workers, which then only forward
	Link              *Link   // instead of workers
	Timeout           time.Duration
	Expect            []Expectation // in the order of the file
}

// Worker is a receiver: Slots parallel servers behind one FIFO queue without a limit.
type Worker struct {
	Rate  float64 // cost per second of the whole worker
	Slots int
}

// Service is how long a batch is served, relative to its mean.
type Service uint8

// The service times.
const (
	Exponential Service = iota
	Deterministic
	Hyper // with probability 0.1 exponential with mean 5.05, else exponential with mean 0.55
)

// Workload is what there is to send.
type Workload struct {
	Saturated bool
	Poisson   float64       // share of the nominal rate of all workers
	Every     time.Duration // one batch each
	Batches   int           // so many and no more: at time 0, or one Every
	Burst     Burst
}

// finite says whether the load ends.
func (l *Workload) finite() bool { return l.Batches > 0 }

// Burst is a number of batches that arrive at once.
type Burst struct {
	At      time.Duration
	Batches int
}

// Size is the distribution of a batch's cost.
type Size struct {
	Kind SizeKind
	A, B float64 // Lognormal: A is sigma; Uniform: whole numbers from A to B; Constant: A
}

// SizeKind names a distribution of cost.
type SizeKind uint8

// The distributions.
const (
	Unit SizeKind = iota
	Lognormal
	Uniform
	Constant
)

// Mean cost of a batch.
func (s Size) Mean() float64 {
	switch s.Kind {
	case Uniform:
		return (s.A + s.B) / 2
	case Constant:
		return s.A
	}
	return 1
}

// EventKind is what an event does to its workers.
type EventKind uint8

// The events.
const (
	Rate     EventKind = iota + 1 // serves at another rate
	Hang                          // takes what comes and what was there, and answers none of it
	Pause                         // serves nothing, and goes on afterwards
	Fail                          // answers an error After the arrival, with the chance Share
	Throttle                      // answers 429 above Limit a second
	Restart                       // what is queued is lost; another epoch
	Credit                        // advertises that
)

// Event is something that happens to some workers.
type Event struct {
	Kind    EventKind
	At, For time.Duration // For 0: to the end
	Workers []int
	Factor  float64       // Rate: times the nominal rate; 0: Limit is the rate
	Limit   float64       // Rate, Throttle: cost per second (Throttle: batches); Credit: what is advertised
	After   time.Duration // Fail
	Share   float64       // Fail
	Hint    time.Duration // Throttle: Retry-After; 0: none
}

// until is when the event is over; the scenario's end if it lasts.
func (e *Event) until(duration time.Duration) time.Duration {
	if e.For == 0 {
		return duration
	}
	return min(duration, e.At+e.For)
}

// Pauses are periodic pauses of every worker, each with a phase of its own.
type Pauses struct {
	Every, For time.Duration
}

// Link is one receiver whose delay depends on its load.
type Link struct {
	Delay       time.Duration
	Jitter      float64 // mean of an exponential extra, as a share of Delay
	Concurrency Knee    // over what is in flight
	Rate        Knee    // over what was begun in the last second
	FailAfter   int     // successes before Failures errors
	Failures    int
}

// Knee is how a link's delay grows with a level, and what happens above a limit.
type Knee struct {
	Scale   float64
	Start   float64
	Exp     float64 // 0: no knee
	Limit   int     // 0: none
	Dropped bool    // above Limit nothing is answered, else an error after the delay
}

// Expectation is what a scenario says of one algorithm.
type Expectation struct {
	Algorithm string // may carry its dispatch: "queue+round_robin"
	Bounds    []Bound
}

// Bound is a limit on a figure.
type Bound struct {
	Field Figure
	Op    string // ">=", "<=", ">", "<"
	Value float64
	Text  string // as it was written
	Worst bool   // of the worst seed instead of the median
	Line  int
}

// Holds says whether v is within b.
func (b *Bound) Holds(v float64) bool {
	switch b.Op {
	case ">=":
		return v >= b.Value
	case "<=":
		return v <= b.Value
	case ">":
		return v > b.Value
	}
	return v < b.Value
}
