//penstock:pure

package control

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// Config of a machine. The zero value works: a linear window for each worker, least-completion
// dispatch, timeouts by RFC 6298.
type Config struct {
	Seed      uint64           // of every random choice
	Window    window.Algorithm // makes one window per worker; nil means window.Linear{}
	Dispatch  dispatch.Policy  // nil means dispatch.LeastCompletion{}
	Timeout   time.Duration    // of an attempt until its worker counts as BUSY; 0 means RFC 6298 for each worker; negative: none
	Retry     backoff.Policy   // how long an item waits before its next attempt; nil means full jitter from 250 ms to 30 s
	Replay    int64            // bytes in flight, or settled and not yet Saved, at most; one item is always allowed; 0: no bound
	Ahead     int              // new items that may wait for a lane without one being free for them; 0 means 64
	Waiting   Waiting          // items that wait for another attempt
	Defer     bool             // the owner keeps items that wait long: it knows Wait, Defer and Held
	End       End              // when an item that keeps failing is given up
	Limit     Limit            // of all lanes together
	LaneLimit Limit            // of each lane
	Shared    bool             // pause half of the lanes now and then, to find out whether they share a bottleneck
	Breaker   Breaker
	Budget    Budget // of failed attempts
	Poison    Poison
	Hedge     Hedge
}

// Breaker says when a worker that fails is left alone and how it is tried again. The zero value
// means the defaults.
type Breaker struct {
	// Failures in a row that open it, at least: bad data and chance can ask for more. 0 means 3;
	// negative: only Misconfigured opens it.
	Failures int
	// Probe is how long it stays open before one probe item; nil: 0.5 s * 2^k with equal jitter, at
	// most 1 s in the first minute of an outage and 30 s later.
	Probe backoff.Policy
}

const (
	defaultAhead = 64
	maxAhead     = 1 << 20
	retryBase    = 250 * time.Millisecond
	retryMost    = 30 * time.Second
	seedStream   = 0x70656e73746f636b // the second half of the generator's seed
)

// Machine is the sender.
type Machine struct {
	cfg     Config
	src     *rand.PCG
	rnd     *rand.Rand
	chooser dispatch.Chooser
	binds   bool // the chooser has one lane for an item
	peaks   bool // the chooser goes by peaks of the round trip
	now     time.Duration

	lanes  []*lane              // up, or down with attempts in flight; by number
	up     []*lane              // by number
	cands  []dispatch.Candidate // of up
	places int                  // sum of lane.places
	free   int                  // lanes with places
	ready  int                  // lanes whose breaker wants a probe
	open   int                  // lanes that neither breaker nor throttle holds back
	opened int                  // lanes whose breaker is open
	firsts int                  // lanes whose next run waits for one item
	global global
	probes []*lane // windows narrowed to measure, oldest first
	purse  purse
	dirty  bool // a gate has changed: gateAt is to be computed again
	gateAt time.Duration
	gated  bool
	lateAt time.Duration // when a Tick was late last; 0: never

	awaited     int     // sum of lane.awaited
	awaitedCost float64 // and of the costs
	flyingCost  float64
	group       group
	tries       tries

	fresh   queue
	redo    queue // and owing: they wait for a lane, not for the first time
	owing   queue
	delayed heap[*item]
	overdue deadlines
	hands   map[uint64]*item
	keys    map[uint32]*keyState
	keyed   int // items with keys
	items   sequence

	attempts  attempts
	freeItems []*item
	freeKeys  []*keyState
	masked    []int    // candidates hidden while one item chooses
	last      *attempt // started last
	runs      uint32   // of all Ordered lanes

	// Bytes of items never sent; sent at least once and not settled; settled and not saved.
	unsent, started, unsaved int64

	shared     gates             // of all lanes
	holder     dispatch.Holder   // chooser, if it is one
	follower   dispatch.Follower // the same
	hold       hold
	replayShut bool // the replay bound holds the next item back
	counts     counts
	blame      blame
	apart      apart
	retrying   retrying
	uptime     uptime
}

// New checks c and returns a machine without lanes.
func New(c Config) (*Machine, error) {
	switch {
	case c.Replay < 0:
		return nil, fmt.Errorf("flow control: a replay bound of %d bytes: want a positive one, or 0 for none", c.Replay)
	case c.Ahead < 0 || c.Ahead > maxAhead:
		return nil, fmt.Errorf("flow control: %d items ahead: want 1 to %d, or 0 for %d", c.Ahead, maxAhead, defaultAhead)
	}
	if c.Ahead == 0 {
		c.Ahead = defaultAhead
	}
	if c.Window == nil {
		c.Window = window.Linear{}
	}
	if err := c.Window.Validate(); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	if c.Dispatch == nil {
		c.Dispatch = dispatch.LeastCompletion{}
	}
	if c.Retry == nil {
		c.Retry = backoff.Exponential(retryBase, 2, retryMost).Full()
	}
	if c.Breaker.Failures == 0 {
		c.Breaker.Failures = defaultFailures
	}
	var err error
	if c.Budget, err = c.Budget.withDefaults(); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	if c.Poison, err = c.Poison.withDefaults(); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	if c.Waiting, err = c.Waiting.withDefaults(); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	if err = c.End.validate(); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	if c.Hedge, err = c.Hedge.withDefaults(); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	if err = errors.Join(c.Limit.validate(), c.LaneLimit.validate()); err != nil {
		return nil, fmt.Errorf("flow control: %w", err)
	}
	src := rand.NewPCG(c.Seed, seedStream)
	m := &Machine{
		cfg: c, src: src, rnd: rand.New(src),
		chooser: c.Dispatch.New(src),
		hands:   make(map[uint64]*item),
		keys:    make(map[uint32]*keyState),
		shared:  c.Limit.gates(),
		purse:   purse{Budget: c.Budget, tokens: c.Budget.Burst},
	}
	_, m.peaks = c.Dispatch.(dispatch.PeakEWMA)
	_, m.binds = m.chooser.(dispatch.Binding)
	m.holder, _ = m.chooser.(dispatch.Holder)
	m.follower, _ = m.chooser.(dispatch.Follower)
	return m, nil
}

// A Tick that comes late says that this process was held up: by others on its machine, a garbage
// collection, suspension.
const (
	// lateTick is from when on answers may be waiting behind.
	lateTick = time.Millisecond
	// heldUp is from when on every round trip under way is longer by that, which says nothing of the
	// workers.
	heldUp = 50 * time.Millisecond
	// heldUpFor is for how long after a late Tick the machine that this process runs on is taken to be
	// busy, perhaps with the workers on it: short round trips grow all at once there.
	heldUpFor = time.Minute
)

// The shortest timeout of a worker whose round trip is known: that of Linux, and not the RFC's
// second; and on a busy machine.
const (
	leastRTO     = 200 * time.Millisecond
	leastBusyRTO = 800 * time.Millisecond
)

// leastRTO is the shortest timeout now.
func (m *Machine) leastRTO() time.Duration {
	if m.lateAt > 0 && m.now-m.lateAt < heldUpFor {
		return leastBusyRTO
	}
	return leastRTO
}

// excuse gives attempts that became overdue while the process was held up as long again, once and a
// second at most, since their answers may be waiting behind; and discards the rounds under way
// where that was long.
func (m *Machine) excuse() {
	at, ok := m.Wake()
	if !ok || m.now-at < lateTick {
		return
	}
	m.lateAt = m.now
	late := min(m.now-at, time.Second)
	if late > heldUp {
		for _, l := range m.up {
			if d, ok := l.win.(window.Discarder); ok {
				d.Discard(m.now)
				l.hear()
			}
		}
	}
	for len(m.overdue) > 0 && m.overdue[0].at <= m.now && !m.overdue[0].a.excused {
		a := m.overdue[0].a
		m.overdue.removeAt(0)
		if a.deadline > m.now { // it only takes long
			a.soon = 0
			m.overdue.push(a)
			continue
		}
		a.excused, a.soon = true, 0
		a.deadline = m.now + late
		m.overdue.push(a)
	}
}

// Step takes one event and appends what is to be done to out. Attempts become overdue on Tick only,
// so that answers which have already come are taken before.
func (m *Machine) Step(e Event, out []Command) []Command {
	m.noteDry(e.Kind)
	m.now = max(m.now, e.Now)
	if e.Kind == Tick {
		m.excuse()
	}
	m.passTime()
	switch e.Kind {
	case Offer:
		it := m.newItem(e.Seq, rank{root: e.Seq, seq: e.Seq}, nil, &e)
		if e.History.Attempts > 0 {
			m.retrying.away.resume(m, it, &e.History)
			break
		}
		it.state = inFresh
		m.fresh.add(it)
	case Answer:
		out = m.answer(&e, out)
	case Tick:
		m.expire()
	case LaneUp:
		m.laneUp(e.Lane, e.Limits)
	case LaneDown:
		m.laneDown(e.Lane)
	case Saved:
		m.unsaved = max(0, m.unsaved-e.Bytes)
	case Cut:
		out = m.cut(&e, out)
	case Piece:
		out = m.piece(&e, out)
	case Buried:
		out = m.buried(&e, out)
	case Withdraw, Abort:
		out = withdraw(m, &e, out)
	case Held:
		m.retrying.away.taken(m, &e)
	}
	out = m.dispatch(out)
	if m.items.oldest != nil && m.cfg.Hedge.Share > 0 && !m.global.active {
		out = m.hedge(out)
	}
	if m.cfg.Defer {
		out = m.retrying.away.tell(m, out)
	}
	m.findGate()
	m.uptime.note(m.now, m.open > 0 && !m.global.active)
	return out
}

// passTime opens the gates and ends the waits that are due.
func (m *Machine) passTime() {
	for len(m.delayed.s) > 0 && m.delayed.s[0].due <= m.now {
		it := m.delayed.s[0]
		m.delayed.removeAt(it.at)
		m.waitForLane(it)
	}
	if m.group.phase != noPhase && m.now >= m.group.ends {
		m.endExperiment(false)
	}
	if m.gated && m.now >= m.gateAt {
		m.dirty = true
		m.refreshAll()
	}
}

// findGate computes when the next gate opens: a throttle, a breaker, the global backoff.
func (m *Machine) findGate() {
	if !m.dirty {
		return
	}
	m.dirty, m.gated = false, false
	if m.global.active {
		m.gate(m.global.until)
	}
	if m.group.phase != noPhase {
		m.gate(m.group.ends)
	}
	for _, l := range m.up {
		for _, g := range l.gates {
			if at, ok := g.next(m.now); ok {
				m.gate(at)
			}
		}
		if l.br.shut() {
			m.gate(l.br.until)
		}
	}
}

func (m *Machine) gate(at time.Duration) {
	if at > m.now && (!m.gated || at < m.gateAt) {
		m.gated, m.gateAt = true, at
	}
}

// expire takes the attempts whose time is up as timed out.
func (m *Machine) expire() {
	for len(m.overdue) > 0 && m.overdue[0].at <= m.now {
		a := m.overdue[0].a
		m.overdue.removeAt(0)
		if a.deadline > m.now {
			a.soon = 0
			m.overdue.push(a)
			m.takesLong(a)
			continue
		}
		if d := a.sent + m.leastRTO(); m.cfg.Timeout == 0 && d > m.now { // that the machine is busy shows only since
			a.deadline = d
			m.overdue.push(a)
			continue
		}
		m.timeout(a)
		m.refresh(a.lane)
	}
}

// Wake says when Step wants a Tick at the latest; false: only when something happens.
func (m *Machine) Wake() (at time.Duration, ok bool) {
	at, ok = m.gateAt, m.gated
	if len(m.overdue) > 0 {
		if d := m.overdue[0].at; !ok || d < at {
			at, ok = d, true
		}
	}
	if len(m.delayed.s) > 0 {
		if d := m.delayed.s[0].due; !ok || d < at {
			at, ok = d, true
		}
	}
	if d, due := m.retrying.away.next(); due && (!ok || d < at) {
		at, ok = d, true
	}
	if d, due := m.apart.next(m.now); due && (!ok || d < at) {
		at, ok = d, true
	}
	if m.hold.on && (!ok || m.hold.till < at) {
		at, ok = m.hold.till, true
	}
	if d, short := m.purse.tokenAt(); short && (!ok || d < at) {
		at, ok = d, true
	}
	if d, due := m.hedgeAt(); due && (!ok || d < at) {
		at, ok = d, true
	}
	return at, ok
}

// replayFull says whether what was offered and is not yet saved comes up to the replay bound.
func (m *Machine) replayFull() bool {
	if m.cfg.Replay == 0 {
		return false
	}
	held := m.unsent + m.started + m.unsaved
	return held > 0 && held >= m.cfg.Replay
}

// Room reports whether an Offer is welcome now: a lane would take it, or, where keys or hash
// dispatch bind items to lanes or items wait for a faster lane, fewer than Config.Ahead wait; and
// the replay bound leaves room. Items that wait for another attempt are bounded by Config.Waiting
// alone. While no lane is open there is room for one item, so that a probe can take one that never
// failed.
func (m *Machine) Room() bool {
	fresh := m.fresh.len()
	if m.replayFull() {
		return false
	}
	if fresh == 0 && (m.global.active || m.open == 0 && m.opened > 0) {
		return true
	}
	if m.retrying.full(&m.cfg.Waiting) {
		return false
	}
	if fresh == 0 && m.owing.able.len() > 0 {
		return true // failed items do not take all places, see sendFresh
	}
	if ahead := m.binds || m.keyed > 0 || m.hold.on; ahead && fresh < m.cfg.Ahead {
		return true
	}
	return fresh < min(m.places, max(m.groupRoom(), 0))+m.ready
}

// uptime is how long at least one lane has been open.
type uptime struct {
	total, since time.Duration
	up           bool
}

// note takes in whether a lane is open from now on.
func (u *uptime) note(now time.Duration, up bool) {
	if u.up {
		u.total += now - u.since
	}
	u.since, u.up = now, up
}

// at returns the uptime now.
func (u *uptime) at(now time.Duration) time.Duration {
	if u.up {
		return u.total + now - u.since
	}
	return u.total
}

// Idle says whether every item has settled: nothing waits, is in flight, is being cut or buried.
// Attempts of settled items may still be out.
func (m *Machine) Idle() bool { return m.items.n == 0 }
