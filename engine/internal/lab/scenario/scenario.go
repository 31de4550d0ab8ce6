//penstock:pure

// Package scenario parses flow-control scenarios and computes their theoretical optimum.
//
// A scenario is a file (see [Load]) with workers, network, load, a schedule of events, and bounds
// on the figures. docs/scenarios/README.md describes the format. Package flowsim runs scenarios;
// this package runs nothing.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow/control"
)

// Scenario is one file.
type Scenario struct {
	Name     string        `yaml:"name"`
	About    string        `yaml:"about"`
	Duration time.Duration `yaml:"duration" required:"true" min:"1ms" max:"24h" doc:"how long it runs, such as 120s"`
	// time from the start that means and quantiles leave out
	Warmup  time.Duration   `yaml:"warmup" max:"24h"`
	Service Service         `yaml:"service" enum:"exponential,deterministic,hyper"`
	Load    Workload        `yaml:"load"`
	Senders int             `yaml:"senders" min:"1" max:"1000"`
	Joins   []time.Duration `yaml:"joins"` // by sender; further senders begin at 0
	Pauses  Pauses          `yaml:"pauses"`
	Link    *Link           `yaml:"link"` // instead of workers
	Bad     Bad             `yaml:"bad"`

	Workers     []Worker
	RTT, Jitter time.Duration // of the network; the jitter is the mean of an exponential addition
	Size        Size
	Events      []Event
	Shared      *Worker       // one server behind all workers, which then only forward
	Timeout     time.Duration // 0 means the product's estimator
	Expect      []Expectation // in the order of the file
}

// Worker is a receiver: Slots parallel servers behind one unbounded FIFO queue.
type Worker struct {
	Rate  float64 // cost per second of the whole worker
	Slots int
}

// Service is the distribution of service times, relative to their mean.
type Service string

// The service times.
const (
	Exponential   Service = "exponential"
	Deterministic Service = "deterministic"
	// with probability 0.1 exponential with mean 5.05, otherwise exponential with mean 0.55
	Hyper Service = "hyper"
)

// Workload is the load of all senders together.
type Workload struct {
	Saturated bool // an endless backlog
	// share of the nominal rate of all workers
	Poisson float64       `yaml:"poisson" min:"1e-6" max:"1000"`
	Every   time.Duration `yaml:"every" min:"1us" max:"1h"` // from one batch to the next
	// number of batches, all at time 0 or at intervals of Every; 0 means unbounded
	Batches int   `yaml:"batches" min:"1" max:"10000000"`
	Burst   Burst `yaml:"burst"`
}

// UnmarshalText parses saturated, the only load that is not a mapping.
func (l *Workload) UnmarshalText(text []byte) error {
	if l.Saturated = string(text) == "saturated"; !l.Saturated {
		return fmt.Errorf("%q is not a load; write saturated, {poisson: 0.5}, {every: 25ms} or "+
			"{batches: 500}", text)
	}
	return nil
}

// Finite reports whether the load ends.
func (l *Workload) Finite() bool { return l.Batches > 0 }

// Bad is data that no worker accepts. It takes no service time.
type Bad struct {
	Keys  int     `yaml:"keys" min:"1" max:"1000000"` // batches of a key keep their order
	Share float64 `yaml:"share" min:"0" max:"1"`      //
	// a worker responds with an error after this time,
	After time.Duration `yaml:"after" max:"1h"`
	Hang  bool          `yaml:"hang"`          // or not at all
	Lanes []int         `yaml:"lanes" min:"0"` // lanes that refuse it; empty means all
}

// Hits reports whether batch seq, counted from 1 for each sender, is bad in the run with this seed.
func (b *Bad) Hits(seed, seq uint64) bool {
	x := seed*0x9e3779b97f4a7c15 + seq // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11)/(1<<53) < b.Share
}

// At reports whether a worker refuses bad data.
func (b *Bad) At(worker int32) bool {
	return len(b.Lanes) == 0 || slices.Contains(b.Lanes, int(worker))
}

// Burst is a number of batches that arrive at once.
type Burst struct {
	At      time.Duration `yaml:"at" max:"24h"`
	Batches int           `yaml:"batches" min:"1" max:"10000000"`
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

// Mean returns the mean cost of a batch.
func (s Size) Mean() float64 {
	switch s.Kind {
	case Uniform:
		return (s.A + s.B) / 2
	case Constant:
		return s.A
	}
	return 1
}

// EventKind is a kind of event.
type EventKind uint8

// The events.
const (
	Rate  EventKind = iota + 1 // changes the service rate
	Hang                       // accepts batches and responds to none, including earlier ones
	Pause                      // serves nothing, and continues afterwards
	// responds with an error After the arrival, with probability Share
	Fail
	Throttle // responds with 429 above Limit per second
	Restart  // loses its queue and begins a new epoch
	Credit   // advertises this window
)

// Event is something that happens to some workers.
type Event struct {
	Kind    EventKind
	At, For time.Duration // For 0 means to the end
	Workers []int
	Factor  float64 // Rate: multiple of the nominal rate; 0 means that Limit is the rate
	// Rate, Throttle: cost per second (Throttle: batches); Credit: the advertised window
	Limit float64
	After time.Duration // Fail
	Share float64       // Fail
	// Fail: of the responses; 0 means control.Retryable. Files cannot set it
	Outcome control.Outcome
	Hint    time.Duration // Throttle: Retry-After; 0 means none
}

// Until returns the end of the event. If For is 0, this is the end of the scenario.
func (e *Event) Until(duration time.Duration) time.Duration {
	if e.For == 0 {
		return duration
	}
	return min(duration, e.At+e.For)
}

// Pauses are periodic pauses of every worker, each with its own phase.
type Pauses struct {
	Every time.Duration `yaml:"every" min:"1ms" max:"24h"`
	For   time.Duration `yaml:"for" min:"1ms" max:"24h"`
	Phase string        `yaml:"phase" enum:"random"`
}

// Link is a receiver whose delay depends on its load.
type Link struct {
	Delay time.Duration `yaml:"delay" required:"true" min:"1us" max:"1h" doc:"of a batch alone, such as 100ms"`
	// mean of an exponential addition, as a share of Delay
	Jitter      float64 `yaml:"jitter" min:"0" max:"1000"`
	Concurrency Knee    `yaml:"concurrency"` // over the batches in flight
	// over the batches begun in the last second
	Rate      Knee      `yaml:"rate"`
	FailFirst FailFirst `yaml:"fail_first"`
}

// FailFirst makes a link respond with Failures errors once After batches have succeeded.
type FailFirst struct {
	After    int `yaml:"after" min:"0" max:"10000000"`
	Failures int `yaml:"failures" min:"1" max:"10000000"`
}

// Knee describes how a link's delay grows with a level, and the link's reaction to a level above
// Limit. The level is the number of batches in flight, or of batches begun in the last second.
type Knee struct {
	Scale float64 `yaml:"scale" min:"0" max:"1e6"`
	Start float64 `yaml:"knee_start" min:"0" max:"1e6"`
	Exp   float64 `yaml:"knee_exp" min:"1" max:"1e3"`   // 0 means no knee
	Limit int     `yaml:"limit" min:"1" max:"10000000"` // 0 means none
	// above Limit; defer, an error after the delay, is the default
	Action string `yaml:"action" enum:"defer,drop"`
}

// Expectation is the bounds of one algorithm.
type Expectation struct {
	Algorithm string // may carry its dispatch: "queue+round_robin"
	Where     config.Place
	Bounds    []Bound
}

// Bound is a limit on a figure.
type Bound struct {
	Field Figure
	Op    string // ">=", "<=", ">", "<"
	Value float64
	Text  string // as written
	Worst bool   // applies to the worst seed instead of the median
}

// Holds reports whether v is within b.
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

// Mean returns the mean service time of a batch of cost c.
func (w *Worker) Mean(c float64) time.Duration {
	return time.Duration(c * float64(w.Slots) / w.Rate * float64(time.Second))
}

// About reports whether the event concerns a worker.
func (e *Event) About(worker int32) bool {
	for _, w := range e.Workers {
		if int32(w) == worker {
			return true
		}
	}
	return false
}
