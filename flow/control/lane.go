//penstock:pure

package control

import (
	"time"
)

// lane is one worker as the machine knows it.
type lane struct {
	num    int32
	at     int // in lanes.up and lanes.cands; -1: it is down
	limits Limits
	win    windowGate

	flying     int // attempts with a running Deliver
	flyingCost float64
	places     int  // further items it may take now, by any item
	ready      bool // its breaker wants one probe item now
	open       bool // up, and neither breaker nor throttle holds it back

	outs    outs
	refuses level
	est     estimator
	// time of its last answer, or of the last attempt sent while nothing was in flight
	heard    time.Duration
	failing  float64
	used     time.Duration
	workerID uint32 // Report.Epoch

	gates    gates // all that apply to it
	hard     slots // Limits.InFlight
	throttle throttle
	limit    limiter
	br       breaker

	part groupPart

	wantOrdered bool // Limits.Ordered as it was last given

	run      orderedRun
	doubts   doubts
	stuck    stuck
	repeated bool // the last attempt was of an item sent before
	stats    laneStats
}

// orderedRun is the run of an Ordered lane.
type orderedRun struct {
	num, place uint32   // of the next attempt
	oldest     *attempt // not yet concluded, in the order of their places
	newest     *attempt
	// one of the run was not delivered: nothing starts until all of it have returned
	broken bool
	halted bool  // and has been concluded: all behind it go back
	first  *item // the next run begins with it
}

// concluded reports whether every attempt of the run has been.
func (r *orderedRun) concluded() bool { return r.oldest == nil }

type laneStats struct{ delivered, failed, timedOut, throttled, late uint64 }

// fill copies them into s.
func (c *laneStats) fill(s *LaneStatus) {
	s.Delivered, s.Failed, s.TimedOut, s.ThrottledN, s.Late = c.delivered, c.failed, c.timedOut, c.throttled, c.late
}

// reorder changes the Ordered state of l once it has no running attempts: running ones keep their
// rules.
func (l *lane) reorder() {
	if l.flying == 0 && l.run.concluded() {
		l.limits.Ordered = l.wantOrdered
	}
}
