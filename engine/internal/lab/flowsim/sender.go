//penstock:pure

package flowsim

import (
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// item is a batch that is assigned to a sender.
type item struct {
	planned time.Duration
	cost    float64
	started bool
	served  bool // a worker has processed it
	settled bool
}

// attempt is an attempt to deliver a batch.
type attempt struct {
	id      uint64
	sender  int32
	lane    int32
	seq     uint64
	cost    float64
	sent    time.Duration
	over    bool // the sender knows the outcome
	lost    bool // there will never be a response
	outcome control.Outcome
	hint    time.Duration
	report  control.Report
}

// sender is a simulated sender. Its control.Machine is the state machine that makes the decisions
// of flow control.
type sender struct {
	num     int32
	m       *control.Machine
	joined  bool
	items   []item // index: sequence number - 1
	offered int
	omitted int       // number of omitted batches; see Options.Omit
	key     [1]uint32 // key of the offered batch
	oldest  int       // all earlier items have settled
	settled int
	wakeAt  time.Duration
	awake   bool
	flying  map[uint64]*attempt
	got     float64         // cost delivered since sim.allJoined, without repetitions
	windows []Sent          // windows by lane, for algorithms that are notified of attempts
	atLane  []int           // number of in-flight attempts by lane, for windows
	refused []control.Event // responses to Bisect and DeadLetter, not yet passed on
}

// plan adds a batch to those that d can send from now on. planned is the time from which the
// latency of the batch is measured.
func (x *sim) plan(d *sender, planned time.Duration) {
	d.items = append(d.items, item{planned: planned, cost: x.drawCost()})
}

// maxOmitted keeps feed from looping forever if the load has no end and the sender omits every
// batch. Once a sender has omitted maxOmitted batches, each further omission ends the loop.
const maxOmitted = 1e6

// feed offers batches to the state machine of d while it accepts them, and schedules the next timer
// of the state machine.
func (x *sim) feed(d *sender) {
	if !d.joined {
		return
	}
	endless := x.s.Load.Saturated
	for (endless || d.offered < len(d.items)) && d.m.Room() {
		if d.offered == len(d.items) {
			x.plan(d, x.events.Now())
		}
		d.offered++
		e := x.offer(d)
		if x.omit != nil && x.omit(e.Seq, d.key[0]) {
			if d.omitted++; d.omitted >= maxOmitted {
				break
			}
			continue
		}
		x.step(d, e)
	}
	if at, ok := d.m.Wake(); ok && (!d.awake || at < d.wakeAt) {
		d.awake, d.wakeAt = true, max(at, x.events.Now())
		x.events.AtEnd(d.wakeAt, occurrence{kind: wakes, num: d.num})
	}
}

// offer returns the event that offers the next batch of d to its state machine.
func (x *sim) offer(d *sender) control.Event {
	e := control.Event{Kind: control.Offer, Seq: uint64(d.offered), Cost: d.items[d.offered-1].cost}
	if n := x.s.Bad.Keys; n > 0 {
		d.key[0] = uint32(x.costs.IntN(n))
		e.Keys = d.key[:]
	}
	return e
}

// wake runs the timers of the state machine of d, if this is the time for which they are scheduled.
func (x *sim) wake(d *sender) {
	if !d.awake || d.wakeAt != x.events.Now() {
		return
	}
	d.awake = false
	x.step(d, control.Event{Kind: control.Tick})
}

func (x *sim) step(d *sender, e control.Event) {
	e.Now = x.events.Now()
	x.cmds = d.m.Step(e, x.cmds[:0])
	if x.tracer != nil && d.num == 0 {
		x.tracer(&e, x.cmds)
	}
	for i := range x.cmds {
		c := &x.cmds[i]
		switch c.Kind {
		case control.Start:
			x.start(d, c)
		case control.Settle:
			x.settle(d, c.Seq)
		case control.Cancel:
			x.cancel(d, c.ID)
		case control.Bisect:
			// Batches cannot be split in the simulation.
			d.refused = append(d.refused, control.Event{Kind: control.Cut, Seq: c.Seq})
		case control.DeadLetter:
			d.refused = append(d.refused, control.Event{Kind: control.DeadLettered, Seq: c.Seq})
		}
	}
	for len(d.refused) > 0 {
		e := d.refused[0]
		d.refused = d.refused[1:]
		x.step(d, e)
	}
}

func (x *sim) start(d *sender, c *control.Command) {
	it := &d.items[c.Seq-1]
	a := x.newAttempt()
	*a = attempt{id: c.ID, sender: d.num, lane: c.Lane, seq: c.Seq, cost: it.cost,
		sent: x.events.Now()}
	d.flying[c.ID] = a
	if d.windows != nil {
		d.atLane[c.Lane]++
		d.windows[c.Lane].Sent(d.atLane[c.Lane])
	}
	x.fig.start(x, a, !it.started)
	it.started = true
	x.events.After(x.oneWay(), occurrence{kind: reaches, num: c.Lane, a: a})
	x.patience.add(a)
	if !x.patient {
		x.patient = true
		x.events.After(x.abandon, occurrence{kind: gaveUp})
	}
}

// giveUp abandons the attempts that have run for x.abandon. Their outcome is TimedOut.
func (x *sim) giveUp() {
	x.patient = false
	for x.patience.len() > 0 {
		a := *x.patience.first()
		if due := a.sent + x.abandon; due > x.events.Now() && !a.over {
			if !x.patient {
				x.patient = true
				x.events.At(due, occurrence{kind: gaveUp})
			}
			return
		}
		x.patience.take()
		if !a.over {
			x.end(a, control.TimedOut, 0)
		}
	}
}

// cancel marks an attempt to be ended, because its batch has settled. The worker is not notified.
func (x *sim) cancel(d *sender, id uint64) {
	if a := d.flying[id]; a != nil {
		x.canceled = append(x.canceled, a)
	}
}

// end passes the outcome of attempt a to the state machine of its sender. hint is the wait before a
// retry that the worker has requested.
func (x *sim) end(a *attempt, out control.Outcome, hint time.Duration) {
	if a.over {
		return
	}
	a.over = true
	d := &x.senders[a.sender]
	delete(d.flying, a.id)
	if d.windows != nil {
		d.atLane[a.lane]--
	}
	x.fig.end(x, a, out)
	if len(x.observers) > 0 {
		x.observers[a.sender].Observe(x.events.Now(), a.lane, x.events.Now()-a.sent, out)
	}
	x.step(d, control.Event{Kind: control.Answer, ID: a.id, Outcome: out, After: hint,
		Report: a.report})
	for len(x.canceled) > 0 {
		c := x.canceled[len(x.canceled)-1]
		x.canceled = x.canceled[:len(x.canceled)-1]
		x.end(c, control.Retryable, 0)
	}
	x.feed(d)
}

func (x *sim) settle(d *sender, seq uint64) {
	it := &d.items[seq-1]
	it.settled = true
	d.settled++
	for d.oldest < len(d.items) && d.items[d.oldest].settled {
		d.oldest++
	}
	if x.events.Now() >= x.allJoined {
		d.got += it.cost
	}
	x.fig.settle(x, it)
	x.last = x.events.Now()
}
