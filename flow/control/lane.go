//penstock:pure

package control

import (
	"time"
)

// lane is the machine's state of one worker.
type lane struct {
	num    int32
	index  int // index in lanes.up and lanes.cands; -1: down
	limits Limits
	win    windowGate

	running    load // attempts with a running Deliver
	room       int  // further items that it may take now
	needsProbe bool // its breaker needs a probe now
	available  bool // up, and neither breaker, throttle nor standby gate is shut

	onTime onTimeAttempts
	level  level
	est    estimator
	// time of its last answer, or of the last attempt sent while none was in flight
	lastAnswer  time.Duration
	failureRate float64
	lastStart   time.Duration
	workerID    uint32 // Report.Epoch
	// the worker has reported for how long a batch waited or was processed
	reportsTimes bool

	gates    gates // including the shared gates
	hard     slots // Limits.InFlight
	throttle throttle
	limit    limiter
	br       breaker

	groupState laneGroupState

	wantOrdered bool // Limits.Ordered of the last LaneUp

	run      orderedRun
	failures laneFailures
	hanging  hanging
	repeated bool // the last attempt was of an item sent before
	stats    laneStats
}

// isUp reports whether the lane is up. A lane that is down takes no attempts, but some may still
// run.
func (l *lane) isUp() bool { return l.index >= 0 }

// orderedRun is the current run of an Ordered lane: attempts that take effect in the order of their
// indexes, until one of them fails. The next run begins with the failed item, if the item is to be
// sent again.
type orderedRun struct {
	num, index uint32   // of the next attempt
	oldest     *attempt // first of the attempts not yet concluded, in the order of their indexes
	newest     *attempt
	// an attempt of the run was not delivered: none starts until all have returned
	broken bool
	halted bool  // that attempt has been concluded: all later ones fail, too
	first  *item // item with which the next run begins
}

// concluded reports whether every attempt of the run has been concluded.
func (r *orderedRun) concluded() bool { return r.oldest == nil }

// nextRunGate is shut while an Ordered lane has failed an item and waits for it, because the next
// run of the lane (see [orderedRun]) must begin with this item.
type nextRunGate struct{ run *orderedRun }

func (g *nextRunGate) room(time.Duration) int {
	if g.run.first != nil {
		return 0
	}
	return unlimited
}

type laneStats struct{ delivered, failed, timedOut, throttled, late uint64 }

// fill copies the counts into s.
func (c *laneStats) fill(s *LaneStatus) {
	s.Delivered, s.Failed, s.TimedOut, s.ThrottledN, s.Late = c.delivered, c.failed, c.timedOut,
		c.throttled, c.late
}

// reorder applies a change of Limits.Ordered if l has no running attempts, because a running
// attempt keeps the rules under which it started.
func (l *lane) reorder() {
	if l.running.n == 0 && l.run.concluded() {
		l.limits.Ordered = l.wantOrdered
	}
}
