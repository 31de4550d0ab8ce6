//penstock:pure

package control

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// Config configures a Machine. The zero value means a linear window for each worker,
// least-completion dispatch, and timeouts by RFC 6298.
type Config struct {
	Seed     uint64           // of every random choice
	Window   window.Algorithm // makes one window per worker; nil means window.Linear{}
	Dispatch dispatch.Policy  // nil means dispatch.LeastCompletion{}
	// time after which an attempt is overdue, and usually counts against its worker. 0 means a
	// timeout as in RFC 6298 for each worker; negative: none
	Timeout time.Duration
	// wait of a suspect, and of a failed item that no other lane can take. With Defer, it is also
	// the wait of an item that the retry budget delays. Nil means exponential backoff from 250 ms
	// to 30 s with full jitter.
	Retry backoff.Policy
	// maximum bytes of the items that a crash can repeat: in flight, or settled and not yet Saved;
	// one item is always allowed; 0: no bound
	Replay int64
	// maximum number of new items that wait although no lane is free for them; 0 means 64
	Ahead   int
	Waiting Waiting // bounds the items that wait for another attempt
	// the owner keeps items that wait long: it handles Wait and Defer, and sends Held
	Defer     bool
	End       End   // when to give up an item that keeps failing
	Limit     Limit // of all lanes together
	LaneLimit Limit // of each lane
	// pause half of the lanes now and then, to detect whether they share a bottleneck
	Shared  bool
	Breaker Breaker
	Budget  Budget // bounds failed retries
	Poison  Poison
	Hedge   Hedge
}

// Breaker configures when a failing worker is paused and how it is probed. The zero value means the
// defaults.
type Breaker struct {
	// Failures is the number of consecutive failures that opens the breaker. With bad data or
	// errors by chance, more failures are needed. Soon after the breaker of another lane has
	// opened, fewer are enough. 0 means 3; negative: only Misconfigured opens it.
	Failures int
	// Probe is the time for which the breaker stays open before each probe. Nil means 0.5 s * 2^k
	// with equal jitter, at most 1 s in the first minute of an outage and 30 s later. While other
	// lanes deliver, nil means a common schedule of all lanes with an open breaker. With bad data,
	// further probes follow a failed one at once.
	Probe backoff.Policy
}

const (
	defaultAhead = 64
	maxAhead     = 1 << 20
	retryBase    = 250 * time.Millisecond
	maxRetryWait = 30 * time.Second
	// bounds the times of a configuration, so that no sum with the time overflows
	maxWait    = math.MaxInt64 / 2
	seedStream = 0x70656e73746f636b // second half of the generator's seed
)

// Machine makes the decisions of a sender. New returns one.
type Machine struct {
	*env
	lanes      *lanes
	breakers   *breakers
	group      *group
	backlog    *backlog
	evidence   *evidence
	settlement *settlement
	attempts   *attempts
	dispatcher *dispatcher
}

// New returns a machine without lanes, or an error that names an invalid field of c.
func New(c Config) (*Machine, error) {
	switch {
	case c.Replay < 0:
		return nil, fmt.Errorf("flow control: a replay bound of %d bytes: want a positive one, or 0 for none", c.Replay)
	case c.Ahead < 0 || c.Ahead > maxAhead:
		return nil, fmt.Errorf("flow control: %d items ahead: want 1 to %d, or 0 for %d", c.Ahead,
			maxAhead, defaultAhead)
	}
	if err := errors.Join(backoff.Validate(c.Retry), backoff.Validate(c.Breaker.Probe)); err != nil {
		return nil, fmt.Errorf("flow control: Retry or Breaker.Probe: %w", err)
	}
	c.Ahead = cmp.Or(c.Ahead, defaultAhead)
	c.Window = cmp.Or[window.Algorithm](c.Window, window.Linear{})
	c.Dispatch = cmp.Or[dispatch.Policy](c.Dispatch, dispatch.LeastCompletion{})
	c.Timeout = min(c.Timeout, maxWait)
	if c.Retry == nil {
		c.Retry = backoff.Exponential(retryBase, 2, maxRetryWait).Full()
	}
	c.Breaker.Failures = cmp.Or(c.Breaker.Failures, defaultFailures)
	var budget, poison, waiting, hedge error
	c.Budget, budget = c.Budget.withDefaults()
	c.Poison, poison = c.Poison.withDefaults()
	c.Waiting, waiting = c.Waiting.withDefaults()
	c.Hedge, hedge = c.Hedge.withDefaults()
	limits := errors.Join(c.Limit.validate(), c.LaneLimit.validate())
	if err := cmp.Or(c.Window.Validate(), budget, poison, waiting, c.End.validate(), hedge, limits); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	src := rand.NewPCG(c.Seed, seedStream)
	e := &env{cfg: c, src: src, rnd: rand.New(src)}
	ev := &evidence{env: e}
	l := newLanes(e, &ev.blame)
	b := newBacklog(e, l)
	ev.lanes, ev.backlog = l, b
	br, g, st := &breakers{env: e, lanes: l}, &group{env: e, lanes: l}, newSettlement(ev)
	at := &attempts{env: e, lanes: l, breakers: br, group: g, backlog: b, evidence: ev, settlement: st}
	return &Machine{
		env: e, lanes: l, breakers: br, group: g, backlog: b, evidence: ev, settlement: st, attempts: at,
		dispatcher: &dispatcher{env: e, lanes: l, group: g, backlog: b, settlement: st, attempts: at},
	}, nil
}

// Step handles one event and appends the resulting commands to out. Attempts become overdue on Tick
// only, so that answers that have already arrived are handled first.
func (m *Machine) Step(e Event, out []Command) []Command {
	m.resetIfSourceDry(e.Kind)
	m.now = max(m.now, e.Now)
	if e.Kind == Tick {
		if at, ok := m.Wake(); ok && m.now-at >= lateTick {
			m.attempts.excuse(m.now - at)
		}
	}
	m.passTime()
	switch e.Kind {
	case Offer:
		m.offer(&e)
	case Answer:
		out = m.attempts.answer(&e, out)
	case Tick:
		m.attempts.expire()
	case LaneUp:
		if m.lanes.add(e.Lane, e.Limits) {
			m.backlog.unblockAll() // items may follow attempts still in flight at this lane
		}
	case LaneDown:
		m.lanes.remove(e.Lane)
	case Saved:
		m.settlement.replay.save(e.Bytes)
	case Cut:
		out = m.settlement.cut(&e, out)
	case Piece:
		out = m.settlement.piece(&e, out)
	case DeadLettered:
		out = m.settlement.deadLettered(&e, out)
	case Withdraw, Abort:
		out = m.settlement.withdraw(&e, out)
	case Held:
		m.settlement.deferAnswered(&e)
	}
	out = m.dispatcher.dispatch(out)
	if m.backlog.items.oldest != nil && m.cfg.Hedge.Share > 0 && !m.lanes.global.active {
		out = m.attempts.hedge(out)
	}
	if m.cfg.Defer {
		out = m.backlog.retrying.deferred.report(m.backlog, out)
	}
	m.findGate()
	m.lanes.uptime.update(m.now, m.lanes.available > 0 && !m.lanes.global.active)
	return out
}

// offer handles an Offer event: a new item, or one that the owner has kept during a wait.
func (m *Machine) offer(e *Event) {
	it := m.backlog.newItem(e.Seq, rank{root: e.Seq, seq: e.Seq}, nil, e)
	m.settlement.replay.add(it)
	if e.History.Attempts > 0 {
		m.backlog.retrying.deferred.resume(m.backlog, it, &e.History)
		return
	}
	it.state = inFresh
	m.backlog.fresh.add(it)
}

// passTime ends the waits of items that are due. It also ends an experiment of the group (see
// group), in which half of the lanes pause, if its time is over. It updates the lanes if a gate may
// have opened.
func (m *Machine) passTime() {
	for len(m.backlog.delayed) > 0 && m.backlog.delayed[0].due <= m.now {
		it := heap.Pop(&m.backlog.delayed).(*item)
		m.backlog.waitForLane(it)
	}
	if m.group.phase != noPhase && m.now >= m.group.ends {
		m.group.endExperiment(false)
	}
	if m.lanes.timer.set && m.now >= m.lanes.timer.at {
		m.lanes.timer.dirty = true
		m.lanes.refreshAll()
	}
}

// findGate computes the time at which the next gate may open.
func (m *Machine) findGate() {
	if !m.lanes.timer.dirty {
		return
	}
	m.lanes.timer.dirty, m.lanes.timer.set = false, false
	if m.lanes.global.active {
		m.lanes.timer.add(m.now, m.lanes.global.until)
	}
	if m.group.phase != noPhase {
		m.lanes.timer.add(m.now, m.group.ends)
	}
	for _, l := range m.lanes.up {
		for _, g := range l.gates.timed {
			if at, ok := g.next(m.now); ok {
				m.lanes.timer.add(m.now, at)
			}
		}
	}
}

// Wake returns the time at which Step needs a Tick, and false if it needs none before the next
// event.
func (m *Machine) Wake() (at time.Duration, ok bool) {
	at, ok = m.lanes.timer.at, m.lanes.timer.set
	earlier := func(d time.Duration, due bool) {
		if due && (!ok || d < at) {
			at, ok = d, true
		}
	}
	if o := m.attempts.deadlines; len(o) > 0 {
		earlier(o[0].at, true)
	}
	if w := m.backlog.delayed; len(w) > 0 {
		earlier(w[0].due, true)
	}
	earlier(m.backlog.retrying.deferred.next())
	earlier(m.backlog.suspects.next(m.now))
	earlier(m.dispatcher.hold.until, m.dispatcher.hold.active)
	earlier(m.backlog.budget.tokenAt())
	earlier(m.attempts.hedgeAt())
	return at, ok
}

// Room reports whether the machine has room for an Offer: the replay bound and Config.Waiting leave
// room, and a lane would take the item. If no lane would take it, there is room in these cases:
//
//   - Keys or the dispatch policy bind items to lanes, or items wait for a faster lane. Up to
//     Config.Ahead new items may then wait without a free lane.
//   - No new item waits, and the breakers or the global backoff keep the lanes from taking items. A
//     probe can then use an item that never failed. Config.Waiting does not apply in this case.
//   - No new item waits, and failed items are ready to be sent. A new one keeps them from taking
//     all places (see freshFirst).
func (m *Machine) Room() bool {
	behind := m.backlog.blockedByFailed()
	fresh := m.backlog.fresh.len() - behind.n
	if m.settlement.replay.full() {
		return false
	}
	full := m.backlog.full()
	closed := m.lanes.global.active || m.lanes.available == 0 && m.lanes.openBreakers > 0
	if closed && fresh == 0 && !(full && behind.n > 0) {
		return true
	}
	if full {
		return false
	}
	if fresh == 0 && m.backlog.retryWithToken.ready.len() > 0 {
		return true // failed items must not take all places, see freshFirst
	}
	if ahead := m.lanes.policy.binds || m.backlog.keyed > 0 || m.dispatcher.hold.active; ahead &&
		fresh < m.cfg.Ahead {
		return true
	}
	return fresh < min(m.lanes.room, m.group.room())+m.lanes.probesDue
}

// Idle reports whether the machine has no unsettled item: none waits, is in flight, or is being cut
// or dead-lettered. Items that the owner keeps (Config.Defer) do not count. Attempts of settled
// items may still be running.
func (m *Machine) Idle() bool { return m.backlog.items.n == 0 }
