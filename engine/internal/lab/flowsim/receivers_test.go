package flowsim_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/peers"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/internal/kernel"
)

// kinds are all kinds of windows.
func kinds() []window.Algorithm {
	return []window.Algorithm{
		window.Linear{}, window.AIMD{}, window.Queue{}, window.Credit{}, window.Rate{},
		window.Fixed{Size: 4},
	}
}

// policies returns all dispatch policies.
func policies() []dispatch.Policy {
	return []dispatch.Policy{
		dispatch.LeastCompletion{}, dispatch.RoundRobin{}, dispatch.Hash{},
		peers.LeastInFlight{}, peers.TwoChoices{},
	}
}

// receiver is a deterministic worker: one server, a queue, and a network.
type receiver struct {
	service time.Duration // of one item
	network time.Duration // round trip
	others  int           // items of other senders that are always in the queue
	// the items with numbers that are multiples of fails fail after their service; 0 means that
	// none fails
	fails int
}

// harness runs a control.Machine against receivers in virtual time. The run is deterministic: the
// receivers make no random choices, and those of the machine depend only on Config.Seed.
type harness struct {
	m         *control.Machine
	receivers []receiver
	lanes     []int32 // receiver i is lane lanes[i]
	credit    bool    // the receivers advertise
	every     time.Duration
	apart     time.Duration // between two lanes that come up

	events  kernel.Kernel[event]
	queues  [][]uint64 // by receiver: numbers of attempts; 0 is an item of another sender
	pools   []window.Pool
	taken   []uint64 // by receiver, of ours
	byLane  map[int32]int
	arrived uint64 // items, with every
	seq     uint64
	wakeAt  time.Duration
	woken   bool
	out     []control.Command

	settled int
	starts  []attempt
	limits  []float64 // of the receiver's window after each of its answers
}

// attempt is one delivery to a receiver.
type attempt struct {
	at       time.Duration
	seq      uint64
	receiver int
	number   uint32 // of the item's attempts
}

type event struct {
	// Kinds: 'l' a lane (the sender's part for one receiver) comes up. 'i' an item arrives. 'r' an
	// attempt reaches its receiver, and 's' the receiver has served it. 'a' its response arrives.
	// 'w' the machine wakes.
	kind     byte
	receiver int
	id       uint64
	outcome  control.Outcome
	report   control.Report
}

// newHarness returns a harness with receiver i as lane i. The parameter every is the interval at
// which items arrive. If it is 0, the next item is always available.
func newHarness(t *testing.T, c control.Config, every time.Duration, r ...receiver) *harness {
	t.Helper()
	m, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{m: m, receivers: r, every: every, byLane: map[int32]int{}}
	_, h.credit = c.Window.(window.Credit)
	h.queues, h.pools, h.taken = make([][]uint64, len(r)), make([]window.Pool, len(r)),
		make([]uint64, len(r))
	for i := range r {
		h.lanes = append(h.lanes, int32(i))
	}
	return h
}

// run runs until the given time and returns h.
func (h *harness) run(until time.Duration) *harness {
	for i := range h.receivers {
		h.byLane[h.lanes[i]] = i
		h.events.After(time.Duration(i)*h.apart, event{kind: 'l', receiver: i})
		for range h.receivers[i].others {
			h.queues[i] = append(h.queues[i], 0)
		}
		if len(h.queues[i]) > 0 {
			h.events.After(h.receivers[i].service, event{kind: 's', receiver: i})
		}
	}
	if h.every > 0 {
		h.events.After(h.every, event{kind: 'i'})
	}
	for {
		e, ok := h.events.Next(until)
		if !ok {
			return h
		}
		h.happen(e)
		for (h.every == 0 || h.arrived > h.seq) && h.m.Room() {
			h.seq++
			h.step(control.Event{Kind: control.Offer, Seq: h.seq, Cost: 1})
		}
		if at, ok := h.m.Wake(); ok && (!h.woken || at < h.wakeAt) {
			h.woken, h.wakeAt = true, at
			h.events.At(max(at, h.events.Now()), event{kind: 'w'})
		}
	}
}

func (h *harness) happen(e event) {
	switch e.kind {
	case 'l':
		h.step(control.Event{Kind: control.LaneUp, Lane: h.lanes[e.receiver]})
	case 'i':
		h.arrived++
		h.events.After(h.every, event{kind: 'i'})
	case 'r':
		if h.queues[e.receiver] = append(h.queues[e.receiver], e.id); len(h.queues[e.receiver]) == 1 {
			h.events.After(h.receivers[e.receiver].service, event{kind: 's', receiver: e.receiver})
		}
	case 's':
		h.served(e.receiver)
	case 'a':
		h.step(control.Event{Kind: control.Answer, ID: e.id, Outcome: e.outcome, Report: e.report})
		if l, ok := h.m.Lane(h.lanes[e.receiver]); ok {
			h.limits = append(h.limits, l.Window)
		}
	case 'w':
		h.woken = false
		h.step(control.Event{Kind: control.Tick})
	}
}

// served ends the service of the first item in the queue of receiver i, and starts that of the next
// item. The id 0 stands for an item of another sender. Such an item goes back to the end of the
// queue, so that this load stays. All other items get a response.
func (h *harness) served(i int) {
	r, q := &h.receivers[i], h.queues[i]
	id := q[0]
	q = q[1:]
	if id == 0 {
		q = append(q, 0)
	} else {
		e := event{kind: 'a', receiver: i, id: id, outcome: control.Delivered}
		if h.taken[i]++; r.fails > 0 && h.taken[i]%uint64(r.fails) == 0 {
			e.outcome = control.Retryable
		}
		if h.credit {
			ad := h.pools[i].Done(h.events.Now(), 1, 1, float64(len(q)), r.network)
			e.report = control.Report{Epoch: 1, Credit: ad.Credit, Taken: ad.Taken,
				QueueLen: ad.QueueLen}
		}
		h.events.After(r.network/2, e)
	}
	if h.queues[i] = q; len(q) > 0 {
		h.events.After(r.service, event{kind: 's', receiver: i})
	}
}

func (h *harness) step(e control.Event) {
	e.Now = h.events.Now()
	h.out = h.m.Step(e, h.out[:0])
	for _, c := range h.out {
		switch c.Kind {
		case control.Settle:
			h.settled++
		case control.Start:
			i := h.byLane[c.Lane]
			h.starts = append(h.starts, attempt{h.events.Now(), c.Seq, i, c.Number})
			h.events.After(h.receivers[i].network/2, event{kind: 'r', receiver: i, id: c.ID})
		}
	}
}

// TestCreditOverLongNetwork checks that a sender uses the advertised credit although most batches
// in flight are in the network. The sender's own window, which bounds the credit, must follow the
// number of batches that are in flight without a long queue.
func TestCreditOverLongNetwork(t *testing.T) {
	s := parse(t, "duration: 90s\nwarmup: 30s\nload: saturated\nservice: exponential\n"+
		"network: { rtt: 200ms, jitter: 20ms }\nworkers: [ { count: 4, rate: 100 } ]\n")
	for seed := range uint64(3) {
		if got := run(t, s, "credit", seed+1)[scenario.Goodput]; got < 0.96 {
			t.Errorf("seed %d: goodput is %.3f, want at least 0.96", seed+1, got)
		}
	}
}
