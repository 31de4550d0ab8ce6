//penstock:pure

// Package controltest drives a machine of package control in virtual time against simulated workers, for
// tests that need figures rather than traces: goodput, round trips, who got how many attempts.
//
// A run is a function of its Scenario: one thread, one heap of events, one seed. It knows only enough of the
// world for tests of the machine; the scenarios that people run are the engine's simulator.
package controltest

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Worker is one simulated receiver: Slots parallel servers behind one FIFO queue without a limit.
type Worker struct {
	Rate   float64 // items per second of the whole worker
	Slots  int     // 0 means 1
	Faults []Fault
}

// FaultKind says what is wrong with a worker for a while.
type FaultKind uint8

// The kinds.
const (
	Hang FaultKind = iota + 1 // takes items, serves none that came, answers nothing
	Fail                      // answers Retryable after After
	Slow                      // serves at Factor times its rate
	Full                      // answers Throttled with After at once
	Deny                      // answers Misconfigured at once
)

// Fault holds from From until before To.
type Fault struct {
	Kind     FaultKind
	From, To time.Duration
	After    time.Duration
	Factor   float64
}

// Scenario is one run.
type Scenario struct {
	Workers  []Worker
	RTT      time.Duration
	Fixed    bool    // service times are constant, else exponential
	Load     float64 // items per second, Poisson; 0: an endless backlog
	Items    int     // this many at time 0 and no more; 0: as Load says
	Duration time.Duration
	Warmup   time.Duration
	Abandon  time.Duration // of an attempt that is not answered; 0 means 60 s
	Seed     uint64
	Config   control.Config
}

// Result holds the figures of one run after its warm-up.
type Result struct {
	Settled    int           // items
	Goodput    float64       // settled per second
	Attempts   []int         // by worker
	FaultyHits []int         // attempts by worker while it has a fault
	Hits       int           // attempts of all workers while any has a fault
	Duplicates uint64        // of the whole run
	Finished   time.Duration // when the last item settled
	RTTs       []time.Duration
	Latencies  []time.Duration // from planned arrival to settle
	InFlight   float64         // mean
	Status     control.Status
}

// Mean of d.
func Mean(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	var s time.Duration
	for _, x := range d {
		s += x
	}
	return s / time.Duration(len(d))
}

// Quantile q of d, which it sorts.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

type event struct {
	at   time.Duration
	n    uint64 // ties go in the order in which they were made
	kind eventKind
	id   uint64
	lane int32
	out  control.Outcome
	wait time.Duration
}

type eventKind uint8

const (
	arrival eventKind = iota // a new item is there to be sent
	reach                    // an attempt reaches its worker
	served                   // a worker has finished one
	answer                   // the answer is back
	abandon                  // nobody waits for it any longer
	wake                     // the machine asked for a Tick
)

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// sim is the state of a run.
type sim struct {
	s       Scenario
	m       *control.Machine
	rnd     *rand.Rand
	now     time.Duration
	heap    events
	n       uint64
	workers []server
	flying  map[uint64]flight
	arrived map[uint64]time.Duration // by Seq
	seq     uint64
	planned []time.Duration // arrivals that found no room
	wakeAt  time.Duration
	woken   bool
	cmds    []control.Command
	r       Result
	area    float64
}

type flight struct {
	lane int32
	sent time.Duration
}

type server struct {
	busy  int
	queue []uint64
}

// Run carries out s.
func Run(s Scenario) (Result, error) {
	m, err := control.New(s.Config)
	if err != nil {
		return Result{}, err
	}
	if s.Abandon == 0 {
		s.Abandon = time.Minute
	}
	x := &sim{
		s: s, m: m, rnd: rand.New(rand.NewPCG(s.Seed, 1)),
		workers: make([]server, len(s.Workers)),
		flying:  map[uint64]flight{}, arrived: map[uint64]time.Duration{},
	}
	x.r.Attempts = make([]int, len(s.Workers))
	x.r.FaultyHits = make([]int, len(s.Workers))
	for i := range s.Workers {
		x.step(control.Event{Kind: control.LaneUp, Lane: int32(i)})
	}
	for range s.Items {
		x.planned = append(x.planned, 0)
	}
	if s.Load > 0 {
		x.schedule(x.exp(1/s.Load), event{kind: arrival})
	}
	x.feed()
	for len(x.heap) > 0 {
		e := heap.Pop(&x.heap).(event)
		if e.at > s.Duration {
			break
		}
		x.advance(e.at)
		x.happen(e)
		x.feed()
		if s.Items > 0 && x.r.Settled == s.Items {
			break
		}
	}
	x.advance(s.Duration)
	span := (s.Duration - s.Warmup).Seconds()
	x.r.Goodput = float64(x.r.Settled) / span
	x.r.InFlight = x.area / span
	x.r.Status = m.Status()
	x.r.Duplicates = x.r.Status.Duplicates
	return x.r, nil
}

func (x *sim) advance(to time.Duration) {
	if from := max(x.now, x.s.Warmup); to > from {
		x.area += float64(len(x.flying)) * (to - from).Seconds()
	}
	x.now = to
}

func (x *sim) schedule(after time.Duration, e event) {
	x.n++
	e.at, e.n = x.now+after, x.n
	heap.Push(&x.heap, e)
}

func (x *sim) exp(mean float64) time.Duration {
	return time.Duration(x.rnd.ExpFloat64() * mean * float64(time.Second))
}

func (x *sim) happen(e event) {
	switch e.kind {
	case arrival:
		x.planned = append(x.planned, x.now)
		x.schedule(x.exp(1/x.s.Load), event{kind: arrival})
	case reach:
		x.reach(e)
	case served:
		w := &x.workers[e.lane]
		w.busy--
		x.schedule(x.s.RTT/2, event{kind: answer, id: e.id, out: control.Delivered})
		x.serve(e.lane)
	case answer:
		x.answer(e.id, e.out, e.wait)
	case abandon:
		x.answer(e.id, control.TimedOut, 0)
	case wake:
		x.woken = false
		x.step(control.Event{Kind: control.Tick})
	}
}

func (x *sim) reach(e event) {
	if f := x.fault(e.lane); f != nil {
		switch f.Kind {
		case Hang:
			return
		case Fail:
			x.schedule(f.After, event{kind: answer, id: e.id, out: control.Retryable})
			return
		case Full:
			x.schedule(x.s.RTT/2, event{kind: answer, id: e.id, out: control.Throttled, wait: f.After})
			return
		case Deny:
			x.schedule(x.s.RTT/2, event{kind: answer, id: e.id, out: control.Misconfigured})
			return
		}
	}
	w := &x.workers[e.lane]
	w.queue = append(w.queue, e.id)
	x.serve(e.lane)
}

// serve begins what free slots allow.
func (x *sim) serve(lane int32) {
	w, c := &x.workers[lane], &x.s.Workers[lane]
	slots := max(1, c.Slots)
	rate := c.Rate
	if f := x.fault(lane); f != nil && f.Kind == Slow {
		rate *= f.Factor
	}
	for w.busy < slots && len(w.queue) > 0 {
		id := w.queue[0]
		w.queue = w.queue[1:]
		w.busy++
		mean := float64(slots) / rate
		d := time.Duration(mean * float64(time.Second))
		if !x.s.Fixed {
			d = x.exp(mean)
		}
		x.schedule(d, event{kind: served, id: id, lane: lane})
	}
}

func (x *sim) fault(lane int32) *Fault {
	for i := range x.s.Workers[lane].Faults {
		if f := &x.s.Workers[lane].Faults[i]; x.now >= f.From && x.now < f.To {
			return f
		}
	}
	return nil
}

func (x *sim) answer(id uint64, out control.Outcome, after time.Duration) {
	f, ok := x.flying[id]
	if !ok {
		return
	}
	delete(x.flying, id)
	if out == control.Delivered && x.now >= x.s.Warmup {
		x.r.RTTs = append(x.r.RTTs, x.now-f.sent)
	}
	x.step(control.Event{Kind: control.Answer, ID: id, Outcome: out, After: after})
}

// feed offers items while the machine has room for them, and arranges to wake it.
func (x *sim) feed() {
	endless := x.s.Load == 0 && x.s.Items == 0
	for (len(x.planned) > 0 || endless) && x.m.Room() {
		planned := x.now
		if !endless {
			planned = x.planned[0]
			x.planned = x.planned[1:]
		}
		x.seq++
		x.arrived[x.seq] = planned
		x.step(control.Event{Kind: control.Offer, Seq: x.seq, Cost: 1})
	}
	if at, ok := x.m.Wake(); ok && (!x.woken || at < x.wakeAt) {
		x.woken, x.wakeAt = true, at
		x.schedule(max(0, at-x.now), event{kind: wake})
	}
}

func (x *sim) step(e control.Event) {
	e.Now = x.now
	x.cmds = x.m.Step(e, x.cmds[:0])
	for _, c := range x.cmds {
		switch c.Kind {
		case control.Start:
			x.started(c)
		case control.Settle:
			if x.now >= x.s.Warmup {
				x.r.Settled++
				x.r.Latencies = append(x.r.Latencies, x.now-x.arrived[c.Seq])
			}
			x.r.Finished = x.now
			delete(x.arrived, c.Seq)
		case control.Cancel:
			delete(x.flying, c.ID)
			x.schedule(0, event{kind: answer, id: c.ID, out: control.Retryable})
			x.flying[c.ID] = flight{lane: c.Lane, sent: x.now}
		}
	}
}

func (x *sim) started(c control.Command) {
	x.flying[c.ID] = flight{lane: c.Lane, sent: x.now}
	if x.now >= x.s.Warmup {
		x.r.Attempts[c.Lane]++
	}
	faulty := false
	for i := range x.s.Workers {
		faulty = faulty || x.fault(int32(i)) != nil
	}
	if faulty {
		x.r.Hits++
		if x.fault(c.Lane) != nil {
			x.r.FaultyHits[c.Lane]++
		}
	}
	x.schedule(x.s.RTT/2, event{kind: reach, id: c.ID, lane: c.Lane})
	x.schedule(x.s.Abandon, event{kind: abandon, id: c.ID})
}
