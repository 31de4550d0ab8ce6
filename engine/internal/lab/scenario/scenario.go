//penstock:pure

// Package scenario parses flow-control scenarios and computes their theoretical optimum.
//
// A scenario is a file with workers, a network, a load, events over time, and bounds on the
// measured figures. Each batch of the load has a cost, the amount of work in it. The mean cost is 1
// by default. The rates of workers are in cost per second. See docs/scenarios/README.md for the
// format. Package flowsim runs scenarios.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow/control"
)

// Scenario is the contents of a scenario file.
type Scenario struct {
	Name     string        `yaml:"name"`
	About    string        `yaml:"about"`
	Duration time.Duration `yaml:"duration" required:"true" min:"1ms" max:"24h" doc:"how long it runs, such as 120s"`
	// Warmup is the time from the start that is not included in means and quantiles.
	Warmup  time.Duration   `yaml:"warmup" max:"24h"`
	Service Service         `yaml:"service" enum:"exponential,deterministic,hyper"`
	Load    Workload        `yaml:"load"`
	Senders int             `yaml:"senders" min:"1" max:"1000"`
	Joins   []time.Duration `yaml:"joins"` // start time by sender; further senders start at 0
	Pauses  Pauses          `yaml:"pauses"`
	Link    *Link           `yaml:"link"` // used instead of workers
	Bad     Bad             `yaml:"bad"`

	Workers     []Worker
	RTT, Jitter time.Duration // round trip of the network; Jitter is the mean of a random addition
	Size        Size
	Events      []Event
	Shared      *Worker       // a server behind all workers, which only forward to it
	Timeout     time.Duration // 0 means that it is estimated, as in the product
	Expect      []Expectation // in the order of the file
}

// Worker is a receiver with one unbounded FIFO queue and Slots parallel servers.
type Worker struct {
	Rate  float64 // cost per second of the whole worker
	Slots int
}

// Service is a distribution of service times relative to their mean.
type Service string

// Values of Service.
const (
	Exponential   Service = "exponential"
	Deterministic Service = "deterministic"
	// Hyper draws from an exponential distribution with mean 5.05 in one case of ten, and otherwise
	// from one with mean 0.55.
	Hyper Service = "hyper"
)

// Workload is the load of all senders together.
type Workload struct {
	Saturated bool // an endless backlog
	// Poisson makes batches arrive at random times (a Poisson process). Its value is their mean
	// rate, as a share of the nominal rate of all workers.
	Poisson float64       `yaml:"poisson" min:"1e-6" max:"1000"`
	Every   time.Duration `yaml:"every" min:"1us" max:"1h"` // interval between batches
	// Batches is the number of batches. They arrive at intervals of Every. If Every is 0, each
	// sender has its share of them when it starts. If Batches is 0, the load has no end.
	Batches int   `yaml:"batches" min:"1" max:"10000000"`
	Burst   Burst `yaml:"burst"`
}

// UnmarshalText parses "saturated". All other loads are mappings.
func (l *Workload) UnmarshalText(text []byte) error {
	if l.Saturated = string(text) == "saturated"; !l.Saturated {
		return fmt.Errorf("%q is not a load; write saturated, {poisson: 0.5}, {every: 25ms} or "+
			"{batches: 500}", text)
	}
	return nil
}

// Finite reports whether the load ends.
func (l *Workload) Finite() bool { return l.Batches > 0 }

// Bad configures bad data, which some or all workers refuse. A refused batch needs no service time.
type Bad struct {
	// Keys is the number of keys. Batches of one key keep their order.
	Keys  int     `yaml:"keys" min:"1" max:"1000000"`
	Share float64 `yaml:"share" min:"0" max:"1"` // share of the batches that are bad
	// After is the time until a worker responds to bad data with an error.
	After time.Duration `yaml:"after" max:"1h"`
	Hang  bool          `yaml:"hang"`          // workers do not respond at all
	Lanes []int         `yaml:"lanes" min:"0"` // workers that refuse bad data; empty means all
}

// Hits reports whether batch seq of a sender is bad in the run with this seed. The first batch has
// the number 1.
func (b *Bad) Hits(seed, seq uint64) bool {
	x := seed*0x9e3779b97f4a7c15 + seq // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11)/(1<<53) < b.Share
}

// At reports whether the worker refuses bad data.
func (b *Bad) At(worker int32) bool {
	return len(b.Lanes) == 0 || slices.Contains(b.Lanes, int(worker))
}

// Burst is a number of batches that arrive at the same time.
type Burst struct {
	At      time.Duration `yaml:"at" max:"24h"`
	Batches int           `yaml:"batches" min:"1" max:"10000000"`
}

// Size is the distribution of the cost of batches.
type Size struct {
	Kind SizeKind
	A, B float64 // Lognormal: A is sigma; Uniform: integers from A to B; Constant: A
}

// SizeKind is a kind of distribution of cost.
type SizeKind uint8

// Values of SizeKind.
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

// The kinds of events. Each comment describes what a worker does during the event.
const (
	Rate  EventKind = iota + 1 // changes the service rate
	Hang                       // accepts batches and responds to none, including earlier ones
	Pause                      // stops serving, and continues after the event
	// responds with an error to a share of the batches (Event.Share). Event.After is the time from
	// the arrival of a batch to the response.
	Fail
	Throttle // responds with 429 to batches above Limit per second
	Restart  // loses all its batches and has a new epoch
	Credit   // advertises the window Limit
)

// Event is a change of some workers for some time.
type Event struct {
	Kind    EventKind
	At, For time.Duration // For 0 means until the end
	Workers []int
	Factor  float64 // Rate: multiple of the nominal rate; 0 means that Limit is used
	// Limit depends on the kind. For Rate it is the new service rate, in cost per second. For
	// Throttle it is the accepted number of batches per second. For Credit it is the advertised
	// window.
	Limit float64
	After time.Duration // Fail
	Share float64       // Fail
	// Outcome is the outcome of the responses, for the kind Fail. 0 means control.Retryable. A file
	// cannot set it.
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

// Pauses are periodic pauses of every worker. Each worker begins its pauses at a random time of its
// own.
type Pauses struct {
	Every time.Duration `yaml:"every" min:"1ms" max:"24h"`
	For   time.Duration `yaml:"for" min:"1ms" max:"24h"`
	Phase string        `yaml:"phase" enum:"random"`
}

// Link is a receiver with a delay that depends on its load. It replaces the workers of a scenario.
type Link struct {
	Delay time.Duration `yaml:"delay" required:"true" min:"1us" max:"1h" doc:"of a batch alone, such as 100ms"`
	// Jitter is the mean of a random time that is added to the delay, as a multiple of Delay. The
	// random time is exponentially distributed.
	Jitter      float64 `yaml:"jitter" min:"0" max:"1000"`
	Concurrency Knee    `yaml:"concurrency"` // effect of the in-flight batches on the delay
	// Rate describes how the number of batches begun in the last second affects the delay.
	Rate      Knee      `yaml:"rate"`
	FailFirst FailFirst `yaml:"fail_first"`
}

// FailFirst makes a link (see [Link]) fail for a while. The link first delivers a number of batches
// (After). Then it responds with errors to a number of further batches (Failures).
type FailFirst struct {
	After    int `yaml:"after" min:"0" max:"10000000"`
	Failures int `yaml:"failures" min:"1" max:"10000000"`
}

// Knee describes how the delay of a link grows with a level, and how the link treats batches above
// Limit. The level is the number of in-flight batches, or of batches begun in the last second.
type Knee struct {
	Scale float64 `yaml:"scale" min:"0" max:"1e6"`
	Start float64 `yaml:"knee_start" min:"0" max:"1e6"`
	Exp   float64 `yaml:"knee_exp" min:"1" max:"1e3"`   // 0 means no exponential growth
	Limit int     `yaml:"limit" min:"1" max:"10000000"` // 0 means no limit
	// Action is the treatment of batches above Limit. With "defer", the default, the link responds
	// to them with an error. With "drop", it does not respond.
	Action string `yaml:"action" enum:"defer,drop"`
	// After is the time from the arrival of such a batch to the error. 0 means the link's Delay.
	After time.Duration `yaml:"after" max:"1h"`
}

// Expectation has the bounds for one algorithm.
type Expectation struct {
	Algorithm string // may carry its dispatch: "queue+round_robin"
	Where     config.Place
	Bounds    []Bound
}

// Bound is a bound on a figure.
type Bound struct {
	Field Figure
	Op    string // ">=", "<=", ">", "<"
	Value float64
	Text  string // as written in the file
	Worst bool   // applies to the worst seed instead of the median of the seeds
}

// Holds reports whether v satisfies b.
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

// Mean returns the mean service time of a batch with cost c.
func (w *Worker) Mean(c float64) time.Duration {
	return time.Duration(c * float64(w.Slots) / w.Rate * float64(time.Second))
}

// About reports whether the event affects a worker.
func (e *Event) About(worker int32) bool {
	return slices.Contains(e.Workers, int(worker))
}
