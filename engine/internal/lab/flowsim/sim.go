//penstock:pure

// Package flowsim runs flow-control scenarios in virtual time. It simulates the workers and the
// network. The flow control itself is the production code of package control: each sender has a
// control.Machine, a state machine that decides when to send a batch to which worker. The cost of a
// batch is the amount of work in it. The rates of workers are in cost per second.
//
// A run has one goroutine and one queue of events. On one GOARCH, its figures depend only on the
// scenario, the Spec and the Options, bit for bit. See docs/flow-control.md for the figures.
package flowsim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/internal/kernel"
)

// sim is the state of a simulation.
type sim struct {
	s    *scenario.Scenario
	spec *Spec

	events  kernel.Kernel[occurrence]
	servers []server
	shared  *server
	failing int // number of workers that hang or return errors
	link    *link
	senders []sender

	arrivals, costs, net *rand.Rand
	lambda               float64 // arrivals per second
	turn                 int     // sender that gets the next batch
	coming               int     // number of batches to come in a finite load

	patience  fifo[*attempt] // attempts, ordered by the time at which they are abandoned
	patient   bool           // an occurrence is scheduled for the first attempt in patience
	abandon   time.Duration
	canceled  []*attempt
	block     []attempt // allocated attempts that are not in use yet
	cmds      []control.Command
	allJoined time.Duration
	last      time.Duration // time of the last settlement
	fig       collector
	observers []Observer // observers by sender
	joining   int32      // number of the sender that is creating its lanes (one for each worker)
	tracer    func(*control.Event, []control.Command)
	omit      func(seq uint64, key uint32) bool
	seed      uint64
	adjust    func(*control.Config)
}

// Observer is the chooser of a dispatch policy (it chooses the worker for a batch) if the chooser
// learns from the results. The simulator must notify it of the end of every attempt.
type Observer interface {
	dispatch.Chooser
	Observe(now time.Duration, lane int32, roundTrip time.Duration, out control.Outcome)
}

// Options of a run, in addition to its scenario.
type Options struct {
	Seed uint64
	// Trace, if not nil, is called after each step of the first sender's state machine, with the
	// event of the step and the resulting commands. Its arguments are valid only during the call.
	Trace  func(*control.Event, []control.Command)
	Series *Series               // if not nil, filled with the values for a plot
	Adjust func(*control.Config) // if not nil, changes the configuration of the senders
	// Omit reports whether the sender omits a batch, for example because it knows that the data is
	// bad. Nil means that no batch is omitted.
	Omit func(seq uint64, key uint32) bool
}

// Numbers of the random streams of a run. Each part of the simulation has its own stream. So all
// algorithms get the same sequences of arrivals, sizes, service times and pauses.
const (
	arrivalStream = iota + 1
	costStream
	netStream
	phaseStream
	linkStream
	sharedStream
	serviceStream = 1 << 20
	errorStream   = 1 << 21
)

// redeliverUnit and redeliverMost are the unit and the maximum of the waits before retries, in
// scenarios with a link (a model of the receivers in Vector's tests). As in Vector, the waits are
// Fibonacci numbers of seconds, up to an hour.
const redeliverUnit, redeliverMost = time.Second, time.Hour

// Config returns the configuration of a sender's state machine for a scenario.
func (s *Spec) Config(of *scenario.Scenario, seed uint64) control.Config {
	c := control.Config{Seed: seed, Window: s.Window, Dispatch: s.Policy, Timeout: of.Timeout}
	c.Hedge.Share, c.Shared = s.Hedge, of.Shared != nil
	if of.Link != nil {
		c.Retry = backoff.Fibonacci(redeliverUnit, redeliverMost)
	}
	return c
}

// abandonAfter is the time after which an attempt is canceled, as in flow.Sender. It is longer than
// most timeouts: a timed-out batch is sent to another worker while its first attempt still runs. If
// the timeout of the scenario is longer, the timeout is used instead. A scenario with a link has
// only one receiver, so its attempts are canceled at the timeout, even if this is shorter.
const abandonAfter = time.Minute

// Run runs a scenario once and returns its figures.
func Run(s *scenario.Scenario, spec *Spec, o Options) (scenario.Figures, error) {
	x := &sim{
		s: s, spec: spec, abandon: max(abandonAfter, s.Timeout), tracer: o.Trace, seed: o.Seed, omit: o.Omit,
		adjust:   o.Adjust,
		arrivals: kernel.Rand(o.Seed, arrivalStream),
		costs:    kernel.Rand(o.Seed, costStream),
		net:      kernel.Rand(o.Seed, netStream),
		servers:  make([]server, len(s.Workers)),
		senders:  make([]sender, s.Senders),
	}
	if s.Link != nil {
		x.link = &link{cfg: *s.Link, rnd: kernel.Rand(o.Seed, linkStream)}
		if s.Timeout > 0 {
			x.abandon = s.Timeout
		}
	}
	for i := range x.servers {
		x.servers[i] = newServer(int32(i), s.Workers[i], o.Seed, serviceStream+uint64(i),
			errorStream+uint64(i))
	}
	if s.Shared != nil {
		v := newServer(-1, *s.Shared, o.Seed, sharedStream, errorStream)
		x.shared = &v
	}
	x.fig.begin(s, o.Series)
	x.schedule(o.Seed)
	for i := range x.senders {
		if err := x.newSender(int32(i), o.Seed); err != nil {
			return scenario.Figures{}, err
		}
	}
	return x.run(), nil
}

func newServer(num int32, w scenario.Worker, seed, service, fate uint64) server {
	return server{
		num: num, cfg: w, speed: 1,
		rnd: kernel.Rand(seed, service), fate: kernel.Rand(seed, fate),
	}
}

// newSender creates sender i and its state machine, which has its own seed.
func (x *sim) newSender(i int32, seed uint64) error {
	c := x.spec.Config(x.s, seed+uint64(i)*0x9e3779b97f4a7c15)
	if x.adjust != nil {
		x.adjust(&c)
	}
	if o, ok := x.spec.Policy.(observing); ok {
		c.Dispatch = keeper{Policy: o, x: x}
	}
	if a, ok := x.spec.Window.(sending); ok {
		c.Window = sendingKeeper{Algorithm: a, x: x}
	}
	m, err := control.New(c)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", x.s.Name, x.spec.Name, err)
	}
	x.senders[i] = sender{num: i, m: m, flying: map[uint64]*attempt{}}
	at := time.Duration(0)
	if int(i) < len(x.s.Joins) {
		at = x.s.Joins[i]
	}
	x.allJoined = max(x.allJoined, at, x.s.Warmup)
	x.events.At(at, occurrence{kind: joins, num: i})
	return nil
}

// observing is a dispatch policy that chooses workers by the results of earlier attempts. So its
// choosers, one for each sender, must be notified of the ends of attempts.
type observing interface {
	dispatch.Policy
	Observes()
}

// keeper is a dispatch policy that records the choosers that it creates, so that the simulator can
// notify them of the ends of attempts.
type keeper struct {
	dispatch.Policy
	x *sim
}

func (k keeper) New(src rand.Source) dispatch.Chooser {
	c := k.Policy.New(src)
	if o, ok := c.(Observer); ok {
		k.x.observers = append(k.x.observers, o)
	}
	return c
}

// sending is an algorithm with windows that must be notified of the start of every attempt.
type sending interface {
	window.Algorithm
	Sends()
}

// Sent is a window that must be notified of the start of every attempt. The argument inFlight
// includes that attempt.
type Sent interface {
	window.Window
	Sent(inFlight int)
}

// sendingKeeper is an algorithm that records the windows that it creates, so that the simulator can
// notify them of attempts. It can assign each window to a lane, because the state machine of a
// sender creates the windows in the order of its lanes.
type sendingKeeper struct {
	window.Algorithm
	x *sim
}

func (k sendingKeeper) New() window.Window {
	w := k.Algorithm.New()
	if s, ok := w.(Sent); ok {
		d := &k.x.senders[k.x.joining]
		d.windows = append(d.windows, s)
		d.atLane = append(d.atLane, 0)
	}
	return w
}

// schedule adds the scenario's events to the queue of events, and the first occurrence of each kind
// that repeats, such as pauses and arrivals.
func (x *sim) schedule(seed uint64) {
	for i := range x.s.Events {
		e := &x.s.Events[i]
		x.events.At(e.At, occurrence{kind: changes, num: -1, gen: uint32(i) + 1})
		if e.For > 0 {
			x.events.At(e.At+e.For, occurrence{kind: changes, num: -1})
		}
	}
	if p := x.s.Pauses; p.Every > 0 {
		phases := kernel.Rand(seed, phaseStream)
		for i := range x.servers {
			at := time.Duration(phases.Float64() * float64(p.Every))
			x.events.At(at, occurrence{kind: changes, num: int32(i), gen: 1})
		}
	}
	l := &x.s.Load
	switch {
	case l.Poisson > 0:
		x.lambda = l.Poisson * x.s.Nominal() / x.s.Size.Mean()
		x.events.At(x.nextArrival(), occurrence{kind: arrives})
		if l.Burst.Batches > 0 {
			x.events.At(l.Burst.At, occurrence{kind: bursts})
		}
	case l.Every > 0:
		x.coming = l.Batches
		x.events.At(0, occurrence{kind: arrives})
	}
	x.events.At(watchEvery, occurrence{kind: watches})
	if x.fig.series != nil {
		x.events.At(x.fig.series.step, occurrence{kind: observed})
	}
}

func (x *sim) nextArrival() time.Duration {
	return x.events.Now() + time.Duration(x.arrivals.ExpFloat64()/x.lambda*float64(time.Second))
}

// drawCost returns the random cost of the next batch.
func (x *sim) drawCost() float64 {
	switch z := x.s.Size; z.Kind {
	case scenario.Lognormal:
		return math.Exp(x.costs.NormFloat64()*z.A - z.A*z.A/2)
	case scenario.Uniform:
		return z.A + float64(x.costs.IntN(int(z.B-z.A)+1))
	case scenario.Constant:
		return z.A
	}
	return 1
}

// run processes events until the end and returns the figures.
func (x *sim) run() scenario.Figures {
	finite := x.s.Load.Finite()
	end := x.s.Duration
	for {
		before := x.events.Now()
		o, ok := x.events.Next(end)
		if !ok {
			break
		}
		x.fig.advance(before, x.events.Now())
		x.happen(&o)
		if finite && x.finished() {
			end = x.events.Now()
			break
		}
	}
	x.fig.advance(x.events.Now(), end)
	x.events.Advance(end)
	for i := range x.servers {
		x.accountAll(&x.servers[i])
	}
	if x.shared != nil {
		x.accountAll(x.shared)
	}
	return x.fig.figures(x)
}

// finished reports whether all batches of a finite load have settled.
func (x *sim) finished() bool {
	n := 0
	for i := range x.senders {
		n += x.senders[i].settled
	}
	return n == x.s.Load.Batches
}

func (x *sim) happen(o *occurrence) {
	switch o.kind {
	case arrives:
		x.arrive()
	case bursts:
		for range x.s.Load.Burst.Batches {
			x.fig.arrived(x.events.Now(), x.deal())
		}
		x.feedAll()
	case reaches:
		x.reach(&x.servers[o.num], o.a)
	case served:
		if o.job.gen != o.gen {
			return
		}
		if o.num < 0 {
			x.served(x.shared, o.job)
		} else {
			x.served(&x.servers[o.num], o.job)
		}
	case answers:
		if x.link != nil {
			x.link.inFlight--
		}
		x.end(o.a, o.a.outcome, o.a.hint)
	case gaveUp:
		x.giveUp()
	case changes:
		x.changes(o)
	case joins:
		x.join(&x.senders[o.num])
	case wakes:
		d := &x.senders[o.num]
		x.wake(d)
		x.feed(d)
	case watches:
		x.fig.watch(x)
		x.events.After(watchEvery, occurrence{kind: watches})
	case observed:
		x.fig.series.observe(x)
		x.events.After(x.fig.series.step, occurrence{kind: observed})
	}
}

// deal gives a new batch to the next sender in turn. It returns the cost of the batch.
func (x *sim) deal() float64 {
	d := &x.senders[x.turn]
	x.turn = (x.turn + 1) % len(x.senders)
	x.plan(d, x.events.Now())
	return d.items[len(d.items)-1].cost
}

func (x *sim) arrive() {
	l := &x.s.Load
	d := &x.senders[x.turn]
	x.fig.arrived(x.events.Now(), x.deal())
	switch {
	case l.Poisson > 0:
		x.events.At(x.nextArrival(), occurrence{kind: arrives})
	case x.coming != 1: // 0 means that the load has no end
		x.coming--
		x.events.After(l.Every, occurrence{kind: arrives})
	}
	x.feed(d)
}

func (x *sim) feedAll() {
	for i := range x.senders {
		x.feed(&x.senders[i])
	}
}

// changes applies the start or end of events of the scenario, or of a pause of one worker.
func (x *sim) changes(o *occurrence) {
	if o.num < 0 {
		for i := range x.servers {
			v := &x.servers[i]
			if o.gen > 0 {
				x.restart(v, &x.s.Events[o.gen-1])
			}
			x.change(v)
		}
		return
	}
	v := &x.servers[o.num]
	p := x.s.Pauses
	if o.gen == 1 {
		v.pausedBy++
		x.events.After(p.For, occurrence{kind: changes, num: o.num, gen: 2})
		x.events.After(p.Every, occurrence{kind: changes, num: o.num, gen: 1})
	} else {
		v.pausedBy--
	}
	x.change(v)
}

// join lets sender d start, at its time in the scenario.
func (x *sim) join(d *sender) {
	d.joined, x.joining = true, d.num
	for i := range x.servers {
		x.step(d, control.Event{Kind: control.LaneUp, Lane: int32(i)})
	}
	if l := &x.s.Load; l.Batches > 0 && l.Every == 0 {
		share := l.Batches / len(x.senders)
		if int(d.num) < l.Batches%len(x.senders) {
			share++
		}
		for range share {
			x.plan(d, x.events.Now())
		}
	}
	x.feed(d)
}

// attemptBlock is the number of attempts that are allocated together.
const attemptBlock = 256

func (x *sim) newAttempt() *attempt {
	if len(x.block) == 0 {
		x.block = make([]attempt, attemptBlock)
	}
	a := &x.block[0]
	x.block = x.block[1:]
	return a
}
