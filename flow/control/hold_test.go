package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

const (
	fastTrip = 20 * time.Millisecond
	slowTrip = 400 * time.Millisecond
)

// pair drives a machine with a fast lane (0) and a slow lane (1). The machine knows their speeds.
type pair struct {
	t     *testing.T
	m     *control.Machine
	now   time.Duration
	seq   uint64
	out   map[uint64]try // attempts
	began []try
	feed  bool // the source always has one more
}

type try struct {
	id   uint64
	seq  uint64
	lane int32
	sent time.Duration
}

func newPair(t *testing.T, c control.Config) *pair {
	t.Helper()
	c.Window = window.Fixed{Size: 4}
	m, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, m: m, out: map[uint64]try{}}
	p.step(control.Event{Kind: control.LaneUp, Lane: 0})
	p.step(control.Event{Kind: control.LaneUp, Lane: 1})
	for range 100 { // one at a time to each lane, so that the machine learns both
		for range 2 {
			p.offer()
		}
		p.run(p.now + slowTrip)
	}
	for p.at(0) > 0 || p.at(1) > 0 {
		p.run(p.now + slowTrip)
	}
	p.began = nil
	return p
}

func (p *pair) step(e control.Event) {
	p.t.Helper()
	e.Now = p.now
	for _, c := range p.m.Step(e, nil) {
		if c.Kind == control.Start {
			a := try{c.ID, c.Seq, c.Lane, p.now}
			p.out[c.ID] = a
			p.began = append(p.began, a)
		}
	}
}

func (p *pair) offer() {
	p.t.Helper()
	p.seq++
	p.step(control.Event{Kind: control.Offer, Seq: p.seq, Cost: 1, Bytes: 10})
}

func (p *pair) at(lane int32) int {
	n := 0
	for _, a := range p.out {
		if a.lane == lane {
			n++
		}
	}
	return n
}

// next returns the attempt that is answered next, and the time of its answer. All lanes answer
// except the one given by silent. Each lane serves its attempts in parallel.
func (p *pair) next(silent int32) (first try, at time.Duration) {
	for _, a := range p.out {
		due := a.sent + fastTrip
		if a.lane == 1 {
			due = a.sent + slowTrip
		}
		if a.lane != silent && (at == 0 || due < at || due == at && a.id < first.id) {
			first, at = a, due
		}
	}
	return first, at
}

// run lets the lanes answer their attempts, and passes the due Ticks to the machine, until the
// given time.
func (p *pair) run(until time.Duration) { p.runBut(until, -1) }

func (p *pair) runBut(until time.Duration, silent int32) {
	p.t.Helper()
	for {
		a, at := p.next(silent)
		wake, ok := p.m.Wake()
		switch {
		case at > 0 && at <= until && (!ok || at <= wake):
			p.now = max(p.now, at)
			delete(p.out, a.id)
			p.step(control.Event{Kind: control.Answer, ID: a.id, Outcome: control.Delivered})
			p.step(control.Event{Kind: control.Saved, Bytes: 10})
			for p.feed && p.m.Room() {
				p.offer()
			}
		case ok && wake <= until:
			if wake < p.now {
				p.t.Fatalf("wants to be woken at %v, and it is %v", wake, p.now)
			}
			p.now = wake
			p.step(control.Event{Kind: control.Tick})
			if again, ok := p.m.Wake(); ok && again <= p.now {
				p.t.Fatalf("wants a second tick at %v", again)
			}
		default:
			p.now = until
			return
		}
	}
}

// held fills the fast lane and offers one more item, which is held.
func (p *pair) held() {
	p.t.Helper()
	for range 10 {
		if p.at(0) == 4 || p.m.Status().Waiting > 0 {
			break
		}
		p.offer()
	}
	if p.m.Status().Waiting == 0 {
		p.offer()
	}
	s := p.m.Status()
	if s.Waiting != 1 || p.at(1) != 0 {
		p.t.Fatalf("%d wait, %d at the slow lane; want one that waits for the fast one", s.Waiting, p.at(1))
	}
	if s.Lanes[1].Gate != "faster" {
		p.t.Errorf("the gate of the slow lane is %q, want faster", s.Lanes[1].Gate)
	}
	if !p.m.Room() {
		p.t.Error("no room, though how many wait is to be known")
	}
}

// TestHeldForTheFaster checks an item that waits for the fast lane although the slow lane is free
// (a held item). It must go to the fast lane as soon as that lane has room.
func TestHeldForTheFaster(t *testing.T) {
	p := newPair(t, control.Config{})
	p.held()
	p.run(p.now + fastTrip)
	if p.m.Status().Waiting != 0 || p.at(1) != 0 || p.began[len(p.began)-1].lane != 0 {
		t.Errorf("after an answer of the fast lane %d wait, %d are at the slow one", p.m.Status().Waiting, p.at(1))
	}
}

// TestHeldNoLongerThanTheSlowerNeeds checks an item that waits for the fast lane although the slow
// lane is free. If the fast lane stops answering, the item must be sent before the slow lane would
// have finished it.
func TestHeldNoLongerThanTheSlowerNeeds(t *testing.T) {
	p := newPair(t, control.Config{Timeout: time.Minute})
	p.held()
	began := p.now
	at, ok := p.m.Wake()
	if !ok || at > began+2*slowTrip {
		t.Fatalf("wants to be woken at %v (%v), held since %v; want it within what the slow lane needs", at, ok, began)
	}
	p.runBut(began+2*slowTrip, 0)
	if last := p.began[len(p.began)-1]; last.seq != p.seq || last.sent > at {
		t.Errorf("item %d was sent at %v, want the one that waited, %d, by %v", last.seq, last.sent, p.seq, at)
	}
	// The fast lane has been silent for long: items no longer wait for it.
	for range 3 {
		p.offer()
		if n := p.m.Status().Waiting; n > 0 {
			t.Fatalf("%d wait for a lane that is silent", n)
		}
	}
	if p.at(1) == 0 {
		t.Error("the slow lane is used by none")
	}
}

// TestHeldAndTheFastLaneGoes checks items that wait for the fast lane although the slow lane is
// free. They must be sent at once when the fast lane is removed, fails or is throttled.
func TestHeldAndTheFastLaneGoes(t *testing.T) {
	for name, end := range map[string]func(p *pair){
		"down": func(p *pair) { p.step(control.Event{Kind: control.LaneDown, Lane: 0}) },
		"throttled": func(p *pair) {
			a, _ := p.next(1)
			delete(p.out, a.id)
			p.step(control.Event{Kind: control.Answer, ID: a.id, Outcome: control.Throttled, After: time.Minute})
		},
		"failing": func(p *pair) {
			for p.at(0) > 0 {
				a, _ := p.next(1)
				delete(p.out, a.id)
				p.step(control.Event{Kind: control.Answer, ID: a.id, Outcome: control.Misconfigured})
				if a.seq == p.seq {
					break
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, control.Config{})
			p.held()
			end(p)
			if p.at(1) == 0 {
				t.Errorf("nothing at the slow lane, %d wait", p.m.Status().Waiting)
			}
		})
	}
}

// TestManyAreNotHeld checks that the slow lane is also filled if enough items wait, and that the
// number of items requested ahead is bounded.
func TestManyAreNotHeld(t *testing.T) {
	p := newPair(t, control.Config{Ahead: 16})
	n := 0
	for p.m.Room() {
		p.offer()
		if n++; n > 100 {
			t.Fatal("the source is asked without end")
		}
	}
	s := p.m.Status()
	if p.at(0) != 4 || p.at(1) != 4 || s.Waiting > 16 {
		t.Errorf("%d and %d in flight, %d wait; want both windows of 4 used up and 16 at most",
			p.at(0), p.at(1), s.Waiting)
	}
	// With an endless source, the machine stops requesting items ahead after a while.
	p.feed = true
	p.run(p.now + 20*time.Second)
	p.feed = false
	if s := p.m.Status(); s.Waiting > 0 || p.at(0) != 4 || p.at(1) != 4 {
		t.Errorf("%d wait, %d and %d in flight; want none and full windows", s.Waiting, p.at(0), p.at(1))
	}
	// The source runs dry: items are held again.
	for p.at(0) > 0 || p.at(1) > 0 {
		p.run(p.now + slowTrip)
	}
	p.held()
}

// TestReplayBoundHoldsNothing checks that no item waits for the fast lane while the slow lane is
// free and the replay bound keeps the machine from requesting items. The number of items that wait
// in the source is then unknown.
func TestReplayBoundHoldsNothing(t *testing.T) {
	p := newPair(t, control.Config{Replay: 50})
	for p.m.Room() {
		p.offer()
	}
	if p.m.Status().Waiting > 0 || p.at(1) == 0 {
		t.Errorf("%d wait, %d at the slow lane", p.m.Status().Waiting, p.at(1))
	}
}
