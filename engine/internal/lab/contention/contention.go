//penstock:pure

// Package contention measures backoff policies where they matter: many clients that want one thing,
// and a service that was away.
//
// [Run] is the simulator of the AWS Architecture Blog ("Exponential Backoff And Jitter", M. Brooker
// 2015; code: aws-arch-backoff-simulator): clients read a row and write it back with the version
// that they have read, which fails if another client was faster. [Outage] is a service that answers
// nobody for a while. Both are pure: the policies are the ones that ship, chance comes from a seed,
// and time is a number. The package prints nothing.
package contention

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/kernel"
)

// The set-up of the original. A hop from client to server or back takes |N(HopMean, HopDeviation)|.
const (
	HopMean      = 10 * time.Millisecond
	HopDeviation = 2 * time.Millisecond
	// Latency is what an attempt takes: the way there and back for the read, and for the write.
	Latency = 4 * HopMean
)

// MaxCalls ends a trial in which the clients do not come to an end, as with a policy that never
// waits and a million of them.
const MaxCalls = 10_000_000

// Trial is what one contention has cost.
type Trial struct {
	Time   time.Duration // until the last client knew that it was done, or gave up
	Calls  int           // writes, successful or not
	GaveUp int           // clients whose policy gave up first
}

// Run lets clients clients update one row, all starting at 0, and returns what it cost. The same
// seed and trial number give the same course.
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
	atClientRead              // its answer arrives at the client
	atServerWrite             // a write arrives
	atClientDone              // the answer to a write that succeeded arrives
	atClientLost              // the answer to one that came too late arrives
)

type event struct {
	client int32
	kind   kind
}

type client struct {
	state   backoff.State
	version int // as it has read it
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

// Figures are means and standard deviations over trials.
type Figures struct {
	Time, TimeDeviation time.Duration
	Calls, CallsSD      float64
	GaveUp              float64 // clients a trial
}

// Measure runs trials and sums them up. The deviations are those of one trial; that of the mean is
// smaller by the root of the number of trials.
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

// sum is Welford's running mean and variance.
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
