package flow_test

import (
	"container/heap"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// kinds are all kinds of windows.
func kinds() []window.Algorithm {
	return []window.Algorithm{
		window.Linear{}, window.AIMD{}, window.Queue{}, window.Credit{}, window.Rate{}, window.Fixed{Size: 4},
	}
}

// policies are all ways to choose a worker.
func policies() []dispatch.Policy {
	return []dispatch.Policy{
		dispatch.LeastCompletion{}, dispatch.RoundRobin{}, dispatch.Hash{}, dispatch.LeastInFlight{}, dispatch.TwoChoices{},
		dispatch.PeakEWMA{},
	}
}

// receiver is a worker without chance: one server, a queue, and a network in front.
type receiver struct {
	service time.Duration // of one item
	network time.Duration // round trip
	others  int           // items of other senders that are always in the queue
	fails   int           // every so manyth of ours comes back undelivered, after its service; 0: none
}

// world is a machine before receivers in virtual time, as deterministic as they are.
type world struct {
	m         *control.Machine
	receivers []receiver
	lanes     []int32 // receiver i is lane lanes[i]
	credit    bool    // the receivers advertise
	every     time.Duration
	apart     time.Duration // between two lanes that come up

	now     time.Duration
	events  worldEvents
	made    uint64
	queues  [][]uint64 // by receiver; attempts, 0: of another sender
	pools   []window.Pool
	taken   []uint64 // by receiver, of ours
	byLane  map[int32]int
	arrived uint64 // items, with every
	seq     uint64
	wakeAt  time.Duration
	woken   bool
	out     []control.Command

	settled int
	starts  []worldStart
	limits  []float64 // of the receiver's window after each of its answers
}

// worldStart is an attempt at a receiver.
type worldStart struct {
	at       time.Duration
	seq      uint64
	receiver int
	number   uint32 // of the item's attempts
}

type worldEvent struct {
	at       time.Duration
	made     uint64 // ties go in the order in which they were made
	kind     byte   // 'l' lane comes up, 'i' item arrives, 'r' attempt reaches its receiver, 's' it was served, 'a' answer, 'w' wake
	receiver int
	id       uint64
	outcome  control.Outcome
	report   control.Report
}

type worldEvents []worldEvent

func (e worldEvents) Len() int { return len(e) }
func (e worldEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].made < e[j].made
}
func (e worldEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *worldEvents) Push(x any)   { *e = append(*e, x.(worldEvent)) }
func (e *worldEvents) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// newWorld has receiver i as lane i. An item comes every so often; 0: there is always one.
func newWorld(t *testing.T, c control.Config, every time.Duration, r ...receiver) *world {
	t.Helper()
	m, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{m: m, receivers: r, every: every, byLane: map[int32]int{}}
	_, w.credit = c.Window.(window.Credit)
	w.queues, w.pools, w.taken = make([][]uint64, len(r)), make([]window.Pool, len(r)), make([]uint64, len(r))
	for i := range r {
		w.lanes = append(w.lanes, int32(i))
	}
	return w
}

func (w *world) schedule(after time.Duration, e worldEvent) {
	w.made++
	e.at, e.made = w.now+after, w.made
	heap.Push(&w.events, e)
}

// run goes on until then.
func (w *world) run(until time.Duration) *world {
	for i := range w.receivers {
		w.byLane[w.lanes[i]] = i
		w.schedule(time.Duration(i)*w.apart, worldEvent{kind: 'l', receiver: i})
		for range w.receivers[i].others {
			w.queues[i] = append(w.queues[i], 0)
		}
		if len(w.queues[i]) > 0 {
			w.schedule(w.receivers[i].service, worldEvent{kind: 's', receiver: i})
		}
	}
	if w.every > 0 {
		w.schedule(w.every, worldEvent{kind: 'i'})
	}
	for w.events[0].at <= until {
		e := heap.Pop(&w.events).(worldEvent)
		w.now = e.at
		w.happen(e)
		for (w.every == 0 || w.arrived > w.seq) && w.m.Room() {
			w.seq++
			w.step(control.Event{Kind: control.Offer, Seq: w.seq, Cost: 1})
		}
		if at, ok := w.m.Wake(); ok && (!w.woken || at < w.wakeAt) {
			w.woken, w.wakeAt = true, at
			w.schedule(max(0, at-w.now), worldEvent{kind: 'w'})
		}
	}
	return w
}

func (w *world) happen(e worldEvent) {
	switch e.kind {
	case 'l':
		w.step(control.Event{Kind: control.LaneUp, Lane: w.lanes[e.receiver]})
	case 'i':
		w.arrived++
		w.schedule(w.every, worldEvent{kind: 'i'})
	case 'r':
		if w.queues[e.receiver] = append(w.queues[e.receiver], e.id); len(w.queues[e.receiver]) == 1 {
			w.schedule(w.receivers[e.receiver].service, worldEvent{kind: 's', receiver: e.receiver})
		}
	case 's':
		w.served(e.receiver)
	case 'a':
		w.step(control.Event{Kind: control.Answer, ID: e.id, Outcome: e.outcome, Report: e.report})
		if l, ok := w.m.Lane(w.lanes[e.receiver]); ok {
			w.limits = append(w.limits, l.Window)
		}
	case 'w':
		w.woken = false
		w.step(control.Event{Kind: control.Tick})
	}
}

// served sends the answer to the first in the queue, or puts it, of another sender, at the end, and serves the next.
func (w *world) served(i int) {
	r, q := &w.receivers[i], w.queues[i]
	id := q[0]
	q = q[1:]
	if id == 0 {
		q = append(q, 0)
	} else {
		e := worldEvent{kind: 'a', receiver: i, id: id, outcome: control.Delivered}
		if w.taken[i]++; r.fails > 0 && w.taken[i]%uint64(r.fails) == 0 {
			e.outcome = control.Retryable
		}
		if w.credit {
			ad := w.pools[i].Done(w.now, 1, 1, float64(len(q)), r.network)
			e.report = control.Report{Epoch: 1, Credit: ad.Credit, Taken: ad.Taken, QueueLen: ad.QueueLen}
		}
		w.schedule(r.network/2, e)
	}
	if w.queues[i] = q; len(q) > 0 {
		w.schedule(r.service, worldEvent{kind: 's', receiver: i})
	}
}

func (w *world) step(e control.Event) {
	e.Now = w.now
	w.out = w.m.Step(e, w.out[:0])
	for _, c := range w.out {
		switch c.Kind {
		case control.Settle:
			w.settled++
		case control.Start:
			i := w.byLane[c.Lane]
			w.starts = append(w.starts, worldStart{w.now, c.Seq, i, c.Number})
			w.schedule(w.receivers[i].network/2, worldEvent{kind: 'r', receiver: i, id: c.ID})
		}
	}
}
