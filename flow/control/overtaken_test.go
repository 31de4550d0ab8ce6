package control

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// TestOvertaken checks onTimeAttempts.overtaken, the cost that was delivered of attempts sent after
// a given one. It compares the result with sums in a plain list. Items differ in cost, some hang
// and give up their places, and some are delivered in part.
func TestOvertaken(t *testing.T) {
	type running struct {
		a         *attempt
		id        uint64
		overtaken float64 // cost delivered of attempts sent later
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	m, stepAt := steps(t)
	var all []*running
	now, seq := time.Duration(0), uint64(0)
	step := func(e Event) {
		for _, a := range stepAt(now, e) {
			all = append(all, &running{a: a, id: a.id})
		}
	}
	l := m.lanes.up[0]
	for round := range 20_000 {
		l.hanging.recent = 10 // attempts may give up their places
		for m.Room() {
			seq++
			step(Event{Kind: Offer, Seq: seq, Cost: float64(1 + rnd.IntN(9)), Bytes: 1})
		}
		now += time.Duration(rnd.IntN(8)) * time.Millisecond
		if at, ok := m.Wake(); ok && at <= now {
			step(Event{Kind: Tick})
		}
		if n := len(all); n > 0 && (n > 40 || rnd.IntN(3) > 0) {
			i := rnd.IntN(min(n, 6))
			r := all[i]
			all = append(all[:i], all[i+1:]...)
			e := Event{Kind: Answer, ID: r.id, Outcome: Delivered}
			delivered := r.a.cost
			switch rnd.IntN(8) {
			case 0:
				e.Outcome, delivered = Retryable, 0
			case 1:
				if it := r.a.item; len(it.running) == 1 && it.state == inFlight {
					e.Outcome, e.Pieces = Split, 2
					delivered = r.a.cost / 2
					e.Cost = delivered
				}
			}
			for _, o := range all {
				if o.id < r.id {
					o.overtaken += delivered
				}
			}
			parent := r.a.item.seq
			step(e)
			if e.Outcome == Split {
				for _, outcome := range []Outcome{Delivered, Retryable} {
					seq++
					step(Event{Kind: Piece, Seq: seq, Parent: parent, Outcome: outcome,
						Cost: delivered})
				}
			}
		}
		for _, r := range all {
			if r.a.overdue {
				continue
			}
			if got := l.onTime.overtaken(r.a); math.Abs(got-r.overtaken) > 1e-6 {
				t.Fatalf("round %d: attempt %d was overtaken by a cost of %v, want %v", round,
					r.id, got, r.overtaken)
			}
		}
	}
}

// steps returns a machine with one lane, and a function that passes an event to the machine at a
// given time and returns the attempts that start.
func steps(t *testing.T) (m *Machine, step func(now time.Duration, e Event) []*attempt) {
	t.Helper()
	m, err := New(Config{Window: window.Fixed{Size: 12}, Poison: Poison{Failures: -1}})
	if err != nil {
		t.Fatal(err)
	}
	step = func(now time.Duration, e Event) (started []*attempt) {
		e.Now = now
		for _, c := range m.Step(e, nil) {
			if c.Kind == Start {
				started = append(started, m.attempts.table.find(c.ID))
			}
		}
		return started
	}
	step(0, Event{Kind: LaneUp})
	return m, step
}

// TestOvertakenAfterAnother checks that an attempt that was overtaken three times gives up its
// place. An earlier attempt with a greater cost keeps its place, because less than three times its
// cost has been delivered since.
func TestOvertakenAfterAnother(t *testing.T) {
	const ms = time.Millisecond
	m, step := steps(t)
	seq := uint64(0)
	offer := func(now time.Duration, cost float64) *attempt {
		seq++
		return step(now, Event{Kind: Offer, Seq: seq, Cost: cost, Bytes: 1})[0]
	}
	for i := range time.Duration(20) {
		a := offer(i*10*ms, 1)
		step((i+1)*10*ms, Event{Kind: Answer, ID: a.id, Outcome: Delivered})
	}
	m.lanes.up[0].hanging.recent = 10
	large, small := offer(300*ms, 9), offer(301*ms, 1)
	for i := range time.Duration(4) {
		a := offer((302+i)*ms, 1)
		step((312+4*i)*ms, Event{Kind: Answer, ID: a.id, Outcome: Delivered})
	}
	if !large.placed || small.placed {
		t.Errorf("the large attempt has a place: %v, the small one: %v; want true and false",
			large.placed, small.placed)
	}
}

// TestTrialIsOvertakenAfterItsTimeout checks a trial, an attempt that tests whether the level of
// the worker has risen. If the trial is overtaken after its timeout, it hangs, so it must end.
func TestTrialIsOvertakenAfterItsTimeout(t *testing.T) {
	m, step := steps(t)
	l := m.lanes.up[0]
	trial := step(0, Event{Kind: Offer, Seq: 1, Cost: 1, Bytes: 1})[0]
	l.level = level{from: 1, wait: levelWait, trial: trial}
	due, _ := m.Wake()
	step(due, Event{Kind: Tick})
	if !trial.overdue || l.level.trial != trial {
		t.Fatalf("the trial is overdue: %v, and still runs: %v", trial.overdue,
			l.level.trial == trial)
	}
	a := step(4*time.Second, Event{Kind: Offer, Seq: 2, Cost: 1, Bytes: 1})[0]
	step(5*time.Second, Event{Kind: Answer, ID: a.id, Outcome: Delivered})
	if l.level.trial != nil {
		t.Error("the trial has not ended")
	}
}
