//penstock:pure

// Package scenario holds flow-control scenarios: their files, and what each allows at best.
//
// A scenario is a file (see [Load]): workers, network, load, what goes wrong when, and bounds on
// the figures. docs/scenarios/README.md describes the file. Package flowsim runs scenarios; this
// package runs nothing.
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
	Name     string          `yaml:"name"`
	About    string          `yaml:"about"`
	Duration time.Duration   `yaml:"duration" required:"true" min:"1ms" max:"24h" doc:"how long it runs, such as 120s"`
	Warmup   time.Duration   `yaml:"warmup" max:"24h"` // figures that are means or quantiles count from here
	Service  Service         `yaml:"service" enum:"exponential,deterministic,hyper"`
	Load     Workload        `yaml:"load"`
	Senders  int             `yaml:"senders" min:"1" max:"1000"`
	Joins    []time.Duration `yaml:"joins"` // by sender; those beyond its end begin at 0
	Pauses   Pauses          `yaml:"pauses"`
	Link     *Link           `yaml:"link"` // instead of workers
	Bad      Bad             `yaml:"bad"`

	Workers     []Worker
	RTT, Jitter time.Duration // of the network; the jitter is the mean of an exponential extra
	Size        Size
	Events      []Event
	Shared      *Worker       // one server behind all workers, which then only forward
	Timeout     time.Duration // 0 means the product's estimator
	Expect      []Expectation // in the order of the file
}

// Worker is a receiver: Slots parallel servers behind one FIFO queue without a limit.
type Worker struct {
	Rate  float64 // cost per second of the whole worker
	Slots int
}

// Service is how long a batch is served, relative to its mean.
type Service string

// The service times.
const (
	Exponential   Service = "exponential"
	Deterministic Service = "deterministic"
	Hyper         Service = "hyper" // with probability 0.1 exponential with mean 5.05, else exponential with mean 0.55
)

// Workload is the load of all senders together.
type Workload struct {
	Saturated bool          // an endless backlog
	Poisson   float64       `yaml:"poisson" min:"1e-6" max:"1000"`  // share of the nominal rate of all workers
	Every     time.Duration `yaml:"every" min:"1us" max:"1h"`       // from one batch to the next
	Batches   int           `yaml:"batches" min:"1" max:"10000000"` // bounds the load: all at time 0, or one Every; 0 means no end
	Burst     Burst         `yaml:"burst"`
}

// UnmarshalText reads saturated, the load that is no mapping.
func (l *Workload) UnmarshalText(text []byte) error {
	if l.Saturated = string(text) == "saturated"; !l.Saturated {
		return fmt.Errorf("%q is no load; write saturated, {poisson: 0.5}, {every: 25ms} or {batches: 500}", text)
	}
	return nil
}

// Finite reports whether the load ends.
func (l *Workload) Finite() bool { return l.Batches > 0 }

// Bad is data that no worker accepts. It takes none of a worker's service.
type Bad struct {
	Keys  int           `yaml:"keys" min:"1" max:"1000000"` // batches of a key keep their order
	Share float64       `yaml:"share" min:"0" max:"1"`      // of the batches
	After time.Duration `yaml:"after" max:"1h"`             // a worker answers with an error after that
	Hang  bool          `yaml:"hang"`                       // or not at all
	Lanes []int         `yaml:"lanes" min:"0"`              // that refuse it; empty means all
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
	Rate     EventKind = iota + 1 // serves at another rate
	Hang                          // takes what comes and what was there, and answers none of it
	Pause                         // serves nothing, and goes on afterwards
	Fail                          // answers an error After the arrival, with the chance Share
	Throttle                      // answers 429 above Limit a second
	Restart                       // loses its queue and begins another epoch
	Credit                        // advertises that
)

// Event is something that happens to some workers.
type Event struct {
	Kind    EventKind
	At, For time.Duration // For 0: to the end
	Workers []int
	Factor  float64         // Rate: times the nominal rate; 0: Limit is the rate
	Limit   float64         // Rate, Throttle: cost per second (Throttle: batches); Credit: the advertised one
	After   time.Duration   // Fail
	Share   float64         // Fail
	Outcome control.Outcome // Fail: of the answers; 0 means control.Retryable. No file sets it
	Hint    time.Duration   // Throttle: Retry-After; 0: none
}

// Until returns the time at which the event is over: the end of the scenario if it lasts.
func (e *Event) Until(duration time.Duration) time.Duration {
	if e.For == 0 {
		return duration
	}
	return min(duration, e.At+e.For)
}

// Pauses are periodic pauses of every worker, each with a phase of its own.
type Pauses struct {
	Every time.Duration `yaml:"every" min:"1ms" max:"24h"`
	For   time.Duration `yaml:"for" min:"1ms" max:"24h"`
	Phase string        `yaml:"phase" enum:"random"`
}

// Link is one receiver whose delay depends on its load.
type Link struct {
	Delay       time.Duration `yaml:"delay" required:"true" min:"1us" max:"1h" doc:"of a batch alone, such as 100ms"`
	Jitter      float64       `yaml:"jitter" min:"0" max:"1000"` // mean of an exponential extra, as a share of Delay
	Concurrency Knee          `yaml:"concurrency"`               // over the batches in flight
	Rate        Knee          `yaml:"rate"`                      // over the batches begun in the last second
	FailFirst   FailFirst     `yaml:"fail_first"`
}

// FailFirst makes a link answer Failures errors once After batches have succeeded.
type FailFirst struct {
	After    int `yaml:"after" min:"0" max:"10000000"`
	Failures int `yaml:"failures" min:"1" max:"10000000"`
}

// Knee is how a link's delay grows with a level, and what happens above a limit.
type Knee struct {
	Scale  float64 `yaml:"scale" min:"0" max:"1e6"`
	Start  float64 `yaml:"knee_start" min:"0" max:"1e6"`
	Exp    float64 `yaml:"knee_exp" min:"1" max:"1e3"`   // 0 means no knee
	Limit  int     `yaml:"limit" min:"1" max:"10000000"` // 0 means none
	Action string  `yaml:"action" enum:"defer,drop"`     // above Limit; defer, an error after the delay, is the default
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
	Text  string // as it was written
	Worst bool   // of the worst seed instead of the median
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
