//penstock:pure

package control

import "time"

// attempt is one delivery of one item to one lane, from the Start command until its outcome has
// been applied to the lane and the item (concluded). The memory of attempts is reused; each use has
// its own ID.
type attempt struct {
	id   uint64
	slot uint32
	item *item
	lane *lane
	cost float64

	ofSuspect bool // of a suspect (see suspects): takes no place in the window
	isHedge   bool // it is a second attempt, see Hedge
	isProbe   bool // of the breaker of its lane, or of the global backoff
	tookToken bool // took a token of the budget

	sent     time.Duration
	previous time.Duration // when the lane's previous attempt was sent
	hedgeAt  time.Duration // earliest time of a hedge
	deadline time.Duration
	// earlier than deadline: time from which the attempt may give up its place in the window; 0 if
	// passed or unused
	earlyDeadline time.Duration
	heapIndex     int  // index in attempts.deadlines; -1: not in it
	excused       bool // its deadline was extended because this process was held up

	// The lane just after the attempt was sent.
	ahead    float64 // cost in flight
	lostCost float64 // cost of the attempts presumed lost
	progress float64 // cost that the lane had delivered
	level    int     // attempts that the worker held, except those presumed lost
	epoch    uint32  // of the window
	limited  bool    // the window was the limit
	raised   bool    // sent beyond the window, or before the first delivery, see maxRaise

	// All lanes just after the attempt was sent, for the group.
	totalCost    float64 // cost in flight
	groupEpoch   uint32  // of the group's window
	groupLimited bool    // the group's window was the limit

	// Its course.
	placed          bool // has a place in the window: counts against its limit
	missed          bool // counted in estimator.missed
	overdue         bool // also if it was answered later
	failureRecorded bool // evidence.recordFailure has handled its failure
	canceled        bool

	// Its answer.
	answered bool // it is concluded when all earlier attempts of its run have been
	outcome  Outcome
	after    time.Duration
	died     bool // the worker died of its item
	partial  bool // a Split that settled a part of its item
	// delivered pieces of its item, which settle when it is concluded
	deliveredPieces []*item

	// The lane's list of running attempts.
	earlier, later *attempt // sent before and after it
	listed         bool     // in the list: running and not overdue
	presumedLost   bool     // probably lost, see onTimeAttempts
	// cost delivered of attempts sent between it and the next in the list
	overtakers float64
	overtaken  float64    // cost delivered of attempts sent later, when it left the list
	excluded   bool       // counted as not at the worker, see hanging
	ranked     bool       // counted in hangRanks
	hungIn     *hangRanks // counted as hung there
	rank       int        // see hangRanks
	heldFor    float64    // seconds for which it had a place before it was counted as hung

	// Ordered lanes.
	ordered    bool
	run, index uint32
	next       *attempt // in the lane's run
}

// slotBits is the number of bits of an attempt's ID that hold its slot, the index in attemptTable.
// They are enough for 4 million attempts at once. The other 42 bits count the attempts of the
// machine.
const slotBits = 22

// attempts starts attempts and handles their ends.
type attempts struct {
	*env
	lanes      *lanes
	breakers   *breakers
	group      *group
	backlog    *backlog
	evidence   *evidence
	settlement *settlement

	table     attemptTable
	deadlines deadlines
	last      *attempt      // started last
	runs      uint32        // of all Ordered lanes
	lateAt    time.Duration // time of the last late Tick; 0: none
	counts    counts
}

// attemptTable holds the attempts that are not concluded, and those free for reuse.
type attemptTable struct {
	slots  []*attempt
	free   []*attempt
	serial uint64
}

// add returns a new attempt.
func (t *attemptTable) add() *attempt {
	var a *attempt
	if n := len(t.free); n > 0 {
		a = t.free[n-1]
		t.free = t.free[:n-1]
		*a = attempt{slot: a.slot, deliveredPieces: a.deliveredPieces[:0]}
	} else {
		a = &attempt{slot: uint32(len(t.slots))}
		t.slots = append(t.slots, a)
	}
	t.serial++
	a.id = t.serial<<slotBits | uint64(a.slot)
	a.heapIndex = -1
	return a
}

// find returns the attempt with this ID, or nil if there is none or it has been answered.
func (t *attemptTable) find(id uint64) *attempt {
	slot := id & (1<<slotBits - 1)
	if slot >= uint64(len(t.slots)) {
		return nil
	}
	if a := t.slots[slot]; a.id == id && !a.answered && a.item != nil {
		return a
	}
	return nil
}

// remove frees attempt a, which has been concluded.
func (t *attemptTable) remove(a *attempt) {
	a.id, a.item, a.lane, a.next, a.earlier, a.later, a.hungIn = 0, nil, nil, nil, nil, nil, nil
	t.free = append(t.free, a)
}

// start starts an attempt of the item at l, and counts it in the lane's gates and window. The
// caller has removed the item from its queue.
func (t *attempts) start(it *item, l *lane, why Reason, out []Command) []Command {
	t.lanes.clearFirst(it)
	if !it.counted {
		t.settlement.replay.start(it)
		t.backlog.consecutiveNew = min(t.backlog.consecutiveNew+1, endlessSource)
	}
	it.state, it.waited = inFlight, false
	it.number++
	t.counts.sent++
	if it.number > 1 {
		t.counts.redeliveries++
	}
	a := t.table.add()
	t.last = a
	a.item, a.lane, a.cost, a.sent, a.ofSuspect = it, l, it.cost, t.now, why == SuspectAttempt
	if why == InOrder && it.needsToken {
		t.backlog.budget.takeToken(a, t.now)
	}
	l.repeated = it.number > 1 && why == InOrder
	it.needsToken, it.awaitsToken = false, false
	it.running = append(it.running, a)
	t.backlog.retrying.remove(it)
	t.backlog.countInFlight(it, l, 1)
	if l.running.n == 0 {
		l.lastAnswer = t.now
	}
	l.running.add(a.cost)
	a.previous, l.lastStart = l.lastStart, t.now
	t.lanes.inFlightCost += a.cost
	a.ahead, a.progress = l.running.cost-l.hanging.excluded.cost, l.est.delivered
	if g := l.win.widening(); g > 1 { // it is among the delivered ones if ahead is used
		a.ahead = a.cost + (a.ahead-a.cost)/g
	}
	a.epoch, a.totalCost = l.win.cached.epoch, t.lanes.inFlightCost
	out = append(out, Command{})
	c := &out[len(out)-1]
	c.Kind, c.Reason, c.Seq, c.ID, c.Lane, c.Number = Start, why, it.seq, a.id, l.num, it.number
	if l.limits.Ordered {
		t.addToRun(l, a)
		c.Run, c.Index = a.run, a.index
	}
	t.lanes.timer.dirty = l.gates.started(t.now, a) || t.lanes.timer.dirty
	if t.lanes.shared.full(t.now) {
		t.lanes.refreshAll()
	}
	l.onTime.add(a)
	if a.ofSuspect {
		l.onTime.ofSuspects++
		l.hanging.exclude(a)
		t.backlog.suspects.running++
		t.lanes.refresh(l)
		return out
	}
	c.Expect = t.occupy(a)
	return out
}

// occupy handles the start of attempt a, which has a place in the window. It stores in a the state
// of the window, for example whether it is now full, because the answer must be judged by this
// state. It also sets the time at which the attempt becomes overdue, and returns it. 0 means never.
func (t *attempts) occupy(a *attempt) (overdue time.Duration) {
	l := a.lane
	a.lostCost, a.level = l.onTime.lost.cost, l.win.atWorker(l.win.load.n-l.onTime.lost.n)
	l.level.started(a)
	a.limited = l.win.room(t.now) == 0
	a.raised = l.est.raise > 0 && (!l.est.known || float64(l.win.load.n) > l.win.places())
	if g := t.group; g.win != nil {
		a.groupEpoch, a.groupLimited = g.win.Epoch(), t.group.isFull()
		a.limited = a.limited && !a.groupLimited
	}
	if t.cfg.Timeout >= 0 {
		if a.deadline = t.now + t.cfg.Timeout; t.cfg.Timeout == 0 {
			a.deadline = t.now + t.timeoutOf(l, a)
		}
		a.earlyDeadline = 0
		if a.ranked = l.hanging.isRecent(); a.ranked {
			a.earlyDeadline = t.now + hangingAfter(a, &l.est)
		} else if wait := t.firstWait(l); wait > 0 {
			a.earlyDeadline = t.now + wait
		}
		t.deadlines.push(a)
	}
	if t.lanes.isCautious(&l.br) {
		l.br.trial = a
	}
	t.lanes.updateRoom(l)
	t.lanes.policy.changed(l.index, t.lanes.cands)
	return a.deadline
}
