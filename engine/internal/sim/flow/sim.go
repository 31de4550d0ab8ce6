//penstock:pure

package flow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// sim is the state of a run.
type sim struct {
	s    *Scenario
	spec *Spec
	now  time.Duration

	agenda  agenda
	servers []server
	shared  *server
	failing int // workers that hang or answer errors
	link    *link
	senders []sender

	arrivals, costs, net *rand.Rand
	lambda               float64 // arrivals per second
	turn                 int     // sender of the next batch
	coming               int     // batches that a finite load still has

	patience  fifo[*attempt] // by the time at which they are abandoned
	patient   bool           // the first of them is on the agenda
	abandon   time.Duration
	canceled  []*attempt
	block     []attempt // attempts not yet used
	cmds      []control.Command
	allJoined time.Duration
	last      time.Duration // settle
	fig       collector
	observers []Observer // by sender
	joining   int32      // sender whose lanes are being made
	tracer    func(*control.Event, []control.Command)
}

// Observer is a chooser that wants to see answers, as the dispatch of some peers does.
type Observer interface {
	dispatch.Chooser
	Observe(now time.Duration, lane int32, roundTrip time.Duration, out control.Outcome)
}

// Options of a run beside its scenario.
type Options struct {
	Seed   uint64
	Trace  func(*control.Event, []control.Command) // of the first sender; what it gets is valid during the call only
	Series *Series                                 // is filled in, if given
}

// The random streams of a run: each part of the world has its own, so that two algorithms meet the same arrivals,
// sizes, service times and pauses.
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

// redeliverUnit is Vector's: after 1, 2, 3, 5 s ..., to an hour.
const redeliverUnit, redeliverMost = time.Second, time.Hour

// Config is the machine's for a sender of this scenario.
func (s *Scenario) Config(spec *Spec, seed uint64) control.Config {
	c := control.Config{Seed: seed, Window: spec.Window, Dispatch: spec.Policy, Timeout: s.Timeout}
	if s.Link != nil {
		c.Retry = backoff.Fibonacci(redeliverUnit, redeliverMost)
	}
	return c
}

// abandonAfter is the hard end of an attempt: flow.Sender's own, or the timeout if that is longer; at a link the timeout
// itself, as there is no other worker to turn to.
const abandonAfter = time.Minute

// Run carries out one run.
func Run(s *Scenario, spec *Spec, o Options) (Figures, error) {
	x := &sim{
		s: s, spec: spec, abandon: max(abandonAfter, s.Timeout), tracer: o.Trace,
		arrivals: rand.New(rand.NewPCG(o.Seed, arrivalStream)),
		costs:    rand.New(rand.NewPCG(o.Seed, costStream)),
		net:      rand.New(rand.NewPCG(o.Seed, netStream)),
		servers:  make([]server, len(s.Workers)),
		senders:  make([]sender, s.Senders),
	}
	if s.Link != nil {
		x.link = &link{cfg: *s.Link, rnd: rand.New(rand.NewPCG(o.Seed, linkStream))}
		if s.Timeout > 0 {
			x.abandon = s.Timeout
		}
	}
	for i := range x.servers {
		x.servers[i] = newServer(int32(i), s.Workers[i], o.Seed, serviceStream+uint64(i), errorStream+uint64(i))
	}
	if s.Shared != nil {
		v := newServer(-1, *s.Shared, o.Seed, sharedStream, errorStream)
		x.shared = &v
	}
	x.fig.begin(s, o.Series)
	x.schedule(o.Seed)
	for i := range x.senders {
		if err := x.newSender(int32(i), o.Seed); err != nil {
			return Figures{}, err
		}
	}
	return x.run(), nil
}

func newServer(num int32, w Worker, seed, service, fate uint64) server {
	return server{
		num: num, cfg: w, speed: 1,
		rnd: rand.New(rand.NewPCG(seed, service)), fate: rand.New(rand.NewPCG(seed, fate)),
	}
}

// newSender makes the machine of sender i. Each has its own seed, and so its own chance.
func (x *sim) newSender(i int32, seed uint64) error {
	c := x.s.Config(x.spec, seed+uint64(i)*0x9e3779b97f4a7c15)
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
	x.agenda.add(occurrence{at: at, kind: joins, num: i})
	return nil
}

// observing is a policy whose choosers want to see answers.
type observing interface {
	dispatch.Policy
	Observes()
}

// keeper notes the choosers that a policy makes, to show them answers.
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

// sending is an algorithm whose windows want to know of what is sent.
type sending interface {
	window.Algorithm
	Sends()
}

// Sent is a window that wants to know of what is sent: so many attempts are now in flight at its worker.
type Sent interface {
	window.Window
	Sent(inFlight int)
}

// sendingKeeper notes the windows that an algorithm makes: the machine of each sender makes them in the order of its
// lanes.
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

// schedule puts what the scenario says will happen on the agenda.
func (x *sim) schedule(seed uint64) {
	for i := range x.s.Events {
		e := &x.s.Events[i]
		x.agenda.add(occurrence{at: e.At, kind: changes, num: -1, gen: uint32(i) + 1})
		if e.For > 0 {
			x.agenda.add(occurrence{at: e.At + e.For, kind: changes, num: -1})
		}
	}
	if p := x.s.Pauses; p.Every > 0 {
		phases := rand.New(rand.NewPCG(seed, phaseStream))
		for i := range x.servers {
			at := time.Duration(phases.Float64() * float64(p.Every))
			x.agenda.add(occurrence{at: at, kind: changes, num: int32(i), gen: 1})
		}
	}
	l := &x.s.Load
	switch {
	case l.Poisson > 0:
		x.lambda = l.Poisson * x.s.nominal() / x.s.Size.Mean()
		x.agenda.add(occurrence{at: x.nextArrival(), kind: arrives})
		if l.Burst.Batches > 0 {
			x.agenda.add(occurrence{at: l.Burst.At, kind: bursts})
		}
	case l.Every > 0:
		x.coming = l.Batches
		x.agenda.add(occurrence{at: 0, kind: arrives})
	}
	x.agenda.add(occurrence{at: watchEvery, kind: watches})
	if x.fig.series != nil {
		x.agenda.add(occurrence{at: x.fig.series.step, kind: observed})
	}
}

func (x *sim) nextArrival() time.Duration {
	return x.now + time.Duration(x.arrivals.ExpFloat64()/x.lambda*float64(time.Second))
}

// drawCost is the cost of the next batch.
func (x *sim) drawCost() float64 {
	switch z := x.s.Size; z.Kind {
	case Lognormal:
		return math.Exp(x.costs.NormFloat64()*z.A - z.A*z.A/2)
	case Uniform:
		return z.A + float64(x.costs.IntN(int(z.B-z.A)+1))
	case Constant:
		return z.A
	}
	return 1
}

// run works the agenda off.
func (x *sim) run() Figures {
	finite := x.s.Load.finite()
	end := x.s.Duration
	for len(x.agenda.s) > 0 && x.agenda.s[0].at <= end {
		o := x.agenda.next()
		x.fig.advance(x.now, o.at)
		x.now = o.at
		x.happen(&o)
		if finite && x.finished() {
			end = x.now
			break
		}
	}
	x.fig.advance(x.now, end)
	x.now = end
	for i := range x.servers {
		x.accountAll(&x.servers[i])
	}
	if x.shared != nil {
		x.accountAll(x.shared)
	}
	return x.fig.figures(x)
}

// finished says whether everything that a finite load has is settled.
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
			x.fig.arrived(x.now, x.deal())
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
		x.agenda.add(occurrence{at: x.now + watchEvery, kind: watches})
	case observed:
		x.fig.series.observe(x)
		x.agenda.add(occurrence{at: x.now + x.fig.series.step, kind: observed})
	}
}

// deal plans a batch at the sender whose turn it is, and returns its cost.
func (x *sim) deal() float64 {
	d := &x.senders[x.turn]
	x.turn = (x.turn + 1) % len(x.senders)
	x.plan(d, x.now)
	return d.items[len(d.items)-1].cost
}

func (x *sim) arrive() {
	l := &x.s.Load
	d := &x.senders[x.turn]
	x.fig.arrived(x.now, x.deal())
	switch {
	case l.Poisson > 0:
		x.agenda.add(occurrence{at: x.nextArrival(), kind: arrives})
	case x.coming != 1: // 0: without end
		x.coming--
		x.agenda.add(occurrence{at: x.now + l.Every, kind: arrives})
	}
	x.feed(d)
}

func (x *sim) feedAll() {
	for i := range x.senders {
		x.feed(&x.senders[i])
	}
}

// changes begins or ends events, or a periodic pause of one worker.
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
		x.agenda.add(occurrence{at: x.now + p.For, kind: changes, num: o.num, gen: 2})
		x.agenda.add(occurrence{at: x.now + p.Every, kind: changes, num: o.num, gen: 1})
	} else {
		v.pausedBy--
	}
	x.change(v)
}

// join starts a sender.
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
			x.plan(d, x.now)
		}
	}
	x.feed(d)
}

// attemptBlock is how many attempts are allocated at once.
const attemptBlock = 256

func (x *sim) newAttempt() *attempt {
	if len(x.block) == 0 {
		x.block = make([]attempt, attemptBlock)
	}
	a := &x.block[0]
	x.block = x.block[1:]
	return a
}
