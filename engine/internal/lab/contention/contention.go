//penstock:pure

// Package contention measures backoff policies in two situations: many clients compete for one
// resource, or a service fails for some time.
//
// [Run] simulates the competition. It is the simulator of the AWS Architecture Blog ("Exponential
// Backoff And Jitter", M. Brooker 2015; code: aws-arch-backoff-simulator). Clients read a row and
// write it back together with the version that they have read. The write fails if another client
// has written the row in between. [Outage] simulates a service that does not respond for some time.
//
// Both simulators accept any backoff.Policy, and use random numbers from a seed and virtual time.
// The package does no I/O.
package contention

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/kernel"
)

// The settings of the AWS simulator. A message takes one hop from a client to the server, and its
// response takes another hop back. The time of a hop is the absolute value of a normal random
// variable with mean HopMean and standard deviation HopDeviation.
const (
	HopMean      = 10 * time.Millisecond
	HopDeviation = 2 * time.Millisecond
	// Latency is the mean duration of an attempt: two hops for the read and two for the write.
	Latency = 4 * HopMean
)

// MaxCalls is the number of writes at which a trial ends. Without this limit, a trial with a
// million clients and a policy that never waits would take too long.
const MaxCalls = 10_000_000

// Trial is the result of one simulated contention.
type Trial struct {
	Time   time.Duration // time at which the last client was done or gave up
	Calls  int           // number of writes, successful or not
	GaveUp int           // number of clients that gave up
}

// Run simulates the given number of clients. All start at time 0 and update the same row. Equal
// seeds and trial numbers give equal results.
func Run(p backoff.Policy, clients int, seed, trial uint64) Trial {
	w := simulation{policy: p, rng: kernel.Rand(seed, trial), clients: make([]client, clients)}
	for i := range w.clients {
		w.events.At(w.hop(), event{int32(i), atServerRead})
	}
	for w.result.Calls < MaxCalls {
		e, ok := w.events.Next(math.MaxInt64)
		if !ok {
			break
		}
		w.step(e)
	}
	return w.result
}

type kind uint8

const (
	atServerRead  kind = iota // a read arrives at the server
	atClientRead              // the response to the read arrives at the client
	atServerWrite             // a write arrives at the server
	atClientDone              // the response to a successful write arrives
	atClientLost              // the response to a failed write arrives
)

type event struct {
	client int32
	kind   kind
}

type client struct {
	state   backoff.State
	version int // version of the row that it has read
}

type simulation struct {
	policy  backoff.Policy
	rng     *rand.Rand
	events  kernel.Kernel[event]
	clients []client
	version int
	result  Trial
}

func (w *simulation) hop() time.Duration {
	return time.Duration(math.Abs(w.rng.NormFloat64()*float64(HopDeviation) + float64(HopMean)))
}

func (w *simulation) step(e event) {
	c := &w.clients[e.client]
	w.result.Time = w.events.Now()
	at, next := w.events.Now()+w.hop(), event{client: e.client}
	switch e.kind {
	case atServerRead:
		c.version = w.version
		next.kind = atClientRead
	case atClientRead:
		next.kind = atServerWrite
	case atServerWrite:
		w.result.Calls++
		next.kind = atClientLost
		if c.version == w.version {
			w.version++
			next.kind = atClientDone
		}
	case atClientDone:
		return
	case atClientLost:
		wait, state, ok := w.policy.Next(c.state, w.rng)
		if !ok {
			w.result.GaveUp++
			return
		}
		c.state = state
		next.kind = atServerRead
		at += wait
	}
	w.events.At(at, next)
}

// Figures are means and standard deviations over several trials.
type Figures struct {
	Time, TimeDeviation time.Duration
	Calls, CallsSD      float64
	GaveUp              float64 // clients per trial
}

// Measure runs trials and summarizes their results. The standard deviations are those of single
// trials. To get the standard deviation of the mean, divide them by the square root of the number
// of trials.
func Measure(p backoff.Policy, clients, trials int, seed uint64) Figures {
	var times, calls, gaveUp sum
	for i := range trials {
		t := Run(p, clients, seed, uint64(i))
		times.add(float64(t.Time))
		calls.add(float64(t.Calls))
		gaveUp.add(float64(t.GaveUp))
	}
	return Figures{
		Time: time.Duration(times.mean), TimeDeviation: time.Duration(times.deviation()),
		Calls: calls.mean, CallsSD: calls.deviation(), GaveUp: gaveUp.mean,
	}
}

// sum computes the mean and variance of added values (Welford's method).
type sum struct {
	n, mean, m2 float64
}

func (s *sum) add(x float64) {
	s.n++
	d := x - s.mean
	s.mean += d / s.n
	s.m2 += d * (x - s.mean)
}

func (s *sum) deviation() float64 {
	if s.n < 2 {
		return 0
	}
	return math.Sqrt(s.m2 / (s.n - 1))
}
