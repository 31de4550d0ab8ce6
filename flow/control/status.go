//penstock:pure

package control

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// Status is a snapshot of a machine for people and metrics.
type Status struct {
	Now           time.Duration // since the start of the sender; 0 in the Status of a Machine
	Waiting       int           // items that wait for a lane or for their next attempt
	Retrying      int           // part of Waiting: items that wait for another attempt
	Deferred      int           // part of Retrying: items that the owner keeps
	WaitingCost   float64       //
	InFlight      int           // items with an attempt in flight that do not wait for another one
	InFlightCost  float64
	ReplayBytes   int64 // in flight, or settled and not yet Saved
	Settled       uint64
	Withdrawn     uint64 // items that settled as withdrawn, see Withdraw
	Attempts      uint64
	Redeliveries  uint64 // attempts without the first attempt of each item
	Hedged        uint64 // redeliveries that were hedges, see Hedge
	Duplicates    uint64 // answers that delivered an item a second time
	ReplayBinding bool   // the replay bound holds back an item now
	Budget        BudgetStatus
	Suspects      int    // unsettled items that fail although their workers deliver others
	Poisoned      uint64 // items that were refused because workers died of them, or failed them
	// the global backoff is active: no lane delivers, their common receiver is suspected, and one
	// probe at a time is sent
	Suspected bool
	Lanes     []LaneStatus
}

// LaneStatus is a snapshot of one lane.
type LaneStatus struct {
	Lane         int32
	Up           bool
	State        window.State // NORMAL, SLOW, BUSY, PROBING, OPEN, THROTTLED
	Reason       string       // explains State, with the figures that led to it
	Window       float64      // current limit, in the window's unit
	InFlight     int          // attempts not yet answered
	InFlightCost float64      //
	// part of InFlight: attempts that gave up their places in the window and are not overdue
	Hanging int
	// Gate is the name of the gate that binds now, one of [Gates].
	Gate       string
	RoundTrip  time.Duration // smoothed
	Base       time.Duration // round trip of the drained worker
	Timeout    time.Duration // current RTO for an item of mean cost
	Until      time.Duration // OPEN, THROTTLED: when the gate opens, since the sender's start
	Delivered  uint64
	Failed     uint64 // retryable answers
	TimedOut   uint64
	Rate       float64 // limit in attempts a second, after a 429; 0: no limit
	ThrottledN uint64
	Fault      Outcome // opened the breaker: Retryable, TimedOut, Misconfigured; 0: closed
	Late       uint64
	Streak     int // consecutive failures, at most one per round trip
}

// Status returns a snapshot of the machine and of each lane that is up or still has attempts in
// flight, in the order of lane numbers. It allocates; it is for people and metrics.
func (m *Machine) Status() Status {
	kept := &m.backlog.retrying.deferred.kept
	s := Status{
		Waiting:       m.backlog.fresh.len() + m.backlog.retrying.n + kept.n,
		Retrying:      m.backlog.retrying.n + kept.n,
		Deferred:      kept.n,
		WaitingCost:   kept.cost,
		ReplayBytes:   m.settlement.replay.started + m.settlement.replay.unsaved,
		Settled:       m.settlement.counts.settled,
		Withdrawn:     m.settlement.counts.withdrawn,
		Attempts:      m.attempts.counts.sent,
		Redeliveries:  m.attempts.counts.redeliveries,
		Hedged:        m.attempts.counts.hedged,
		Duplicates:    m.settlement.counts.duplicates,
		ReplayBinding: m.settlement.replay.binds(),
		Budget:        m.backlog.budgetStatus(),
		Suspects:      m.backlog.suspects.unsettled,
		Poisoned:      m.settlement.counts.poisoned,
		Suspected:     m.lanes.global.active,
		Lanes:         make([]LaneStatus, 0, len(m.lanes.all)),
	}
	for it := m.backlog.items.oldest; it != nil; it = it.next {
		if it.state == inFresh || it.account.retrying {
			s.WaitingCost += it.cost
		}
	}
	for _, a := range m.attempts.table.slots {
		if it := a.item; it != nil && it.state == inFlight && it.running[0] == a {
			s.InFlight++
			s.InFlightCost += it.cost
		}
	}
	for _, l := range m.lanes.all {
		s.Lanes = append(s.Lanes, m.laneStatus(l))
	}
	return s
}

// counts are numbers of attempts since the start of the machine.
type counts struct {
	sent         uint64
	redeliveries uint64
	hedged       uint64 // hedges, part of redeliveries
}

// Lane returns a snapshot of one lane. It returns false if the lane is not up and has no attempts
// in flight.
func (m *Machine) Lane(num int32) (LaneStatus, bool) {
	l := m.lanes.get(num)
	if l == nil {
		return LaneStatus{}, false
	}
	return m.laneStatus(l), true
}

func (m *Machine) laneStatus(l *lane) LaneStatus {
	s := LaneStatus{
		Lane: l.num, Up: l.isUp(),
		State: l.win.State(), Reason: l.win.Reason(), Window: l.win.Limit(),
		InFlight: l.running.n, InFlightCost: l.running.cost, Hanging: l.onTime.countHanging(),
		RoundTrip: l.est.smoothed(), Base: toDuration(l.est.service), Timeout: m.attempts.rto(l),
		Rate: l.limit.paced(m.now), Streak: l.br.streak,
	}
	l.stats.fill(&s)
	if p := l.win.probe.prober; p != nil && p.Base() > 0 {
		s.Base = p.Base()
	}
	if g := m.group; g.win != nil {
		s.Reason += fmt.Sprintf("; it shares a bottleneck with the other lanes, whose common "+
			"limit is %d: %s", g.limit, g.win.Reason())
	}
	s.Gate = m.binding(l)
	if s.State == window.Unknown && l.br.alive { // answered, but without a round-trip sample
		s.State, s.Reason = window.Normal, "it answers; its round trip is not known yet"
	}
	switch {
	case l.br.shut():
		s.State, s.Until = window.Open, l.br.until
		if l.br.state == breakerPaused {
			s.State = window.Busy // at most half of the lanes are OPEN
		}
		s.Reason, s.Fault = l.br.reason(), l.br.fault
		if l.br.probe != nil {
			s.State, s.Until = window.Probing, 0
			s.Reason += "; one probe is in flight"
		}
	case m.lanes.global.active:
		s.State, s.Until = window.Busy, m.lanes.global.until
		s.Reason = "no worker delivers: their common receiver is suspected, and one probe at a time is sent"
	case l.throttle.shut(m.now):
		s.State, s.Until = window.Throttled, l.throttle.until
		s.Reason = fmt.Sprintf("the receiver asked for a pause until %v", l.throttle.until)
	}
	return s
}

func (b *breaker) reason() string {
	why := "failures in a row"
	switch b.fault {
	case TimedOut:
		why = "attempts overdue in a row"
	case Misconfigured:
		return "the worker is misconfigured: paused between attempts"
	}
	if b.state == breakerPaused {
		return why + " at most workers: paused briefly"
	}
	return why + ": paused between attempts"
}
