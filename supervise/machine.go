//penstock:pure

package supervise

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/minheap"
)

// State is the state of a child or of a supervisor.
type State uint8

// The states.
const (
	Idle     State = iota // not started yet, or stopped to be restarted together with others
	Waiting               // waiting for its next start
	Running               // started and not told to stop
	Halting               // told to stop, and has not returned yet
	Hanging               // told to stop, and has not returned within its Shutdown
	Finished              // ended, and will not be restarted
)

// String returns the name: "idle", "waiting", "running", "stopping", "stuck" or "done".
func (s State) String() string {
	return nameOf(s, "idle", "waiting", "running", "stopping", "stuck", "done")
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// child is the state of one child in the state machine.
type child struct {
	Child
	top        time.Duration // the longest delay of its policy
	seq        uint64        // orders the children
	initial    bool          // added before the first Serve
	prev, next *child

	state    State
	alive    bool // an incarnation has started and not returned
	afterEnd follow
	// The field at is the time of the child's next start, or the end of its Shutdown. It orders the
	// heap that holds the child.
	at          time.Duration
	pos         int // index in that heap, or -1
	incarnation uint64
	since       time.Duration // time of its last start or end
	backoff     backoff.State
	delay       time.Duration // the last delay
	err         error         // error of the last end
	patience    time.Duration // replaces a Shutdown of 0 if the child runs supervisors
}

// Before implements minheap.Element. Children with equal times are in the order in which they were
// added.
func (c *child) Before(other *child) bool {
	return c.at < other.at || c.at == other.at && c.seq < other.seq
}

// SetIndex implements minheap.Element.
func (c *child) SetIndex(i int) { c.pos = i }

// follow is the action after the return of an incarnation that was told to stop.
type follow uint8

const (
	thenJudge   follow = iota // neither Restart nor Remove was called
	thenRestart               // Restart was called
	thenRemove                // Remove was called
)

// phase is the state of the whole supervisor.
//
//	notStarted ─begin─▶ keeping ⇄ regrouping
//	each of these ─stop─▶ ending ─▶ over ─reset─▶ notStarted
type phase uint8

const (
	notStarted phase = iota
	keeping          // restarting children one by one
	regrouping       // children from machine.mark on are being stopped, to start again in order
	ending           // all children are being stopped
	over             // all children have returned or are stuck
)

// command is one step for the goroutine of Serve.
type command struct {
	kind  commandKind
	child *child
	cause error // cause of a cancellation
	event Event
}

type commandKind uint8

const (
	commandStart commandKind = iota
	commandCancel
	commandRemoved // the child has left the supervisor
	commandReport
)

// machine is the state machine of one supervisor: it decides when each child starts and stops, and
// when the supervisor gives up. Its methods get the time since the start of Serve as a parameter,
// and append their commands to the field out.
type machine struct {
	path        string
	spec        Spec
	phase       phase
	first, last *child
	initial     []*child // added before the first Serve; each Serve begins with them
	names       map[string]*child
	seq         uint64
	alive       int
	waits       minheap.Heap[*child] // children in state Waiting, by their starts
	stops       minheap.Heap[*child] // children in state Halting, by the ends of their Shutdown

	slot   time.Duration // earliest time of the next staggered restart
	crowd  int           // the highest number of waiting children since none waited
	recent recent
	decay  decaying

	mark     uint64        // regrouping: seq of the group's first child
	due      time.Duration // regrouping: earliest start of the group
	cursor   *child        // regrouping, ending: the last child that has not been stopped yet
	deadline time.Duration // ending: when all remaining children are told to stop at once
	overdue  bool          // ending: the deadline has passed
	cause    error         // ending: cause of the end of the children's contexts
	result   error         // ending: result of Serve
	errs     []error       // the last errors of children

	out []command
}

func newMachine(path string, spec Spec) *machine {
	return &machine{path: path, spec: spec, names: map[string]*child{},
		recent: recent{Intensity: spec.Intensity}}
}

// add adds a child, and starts it in phase keeping.
func (m *machine) add(now time.Duration, recipe Child) error {
	recipe, err := recipe.withDefaults(m.spec)
	switch {
	case err != nil:
		return err
	case m.names[recipe.Name] != nil:
		return fmt.Errorf("child %q: the name is taken by another child", recipe.Name)
	case m.phase >= ending:
		return fmt.Errorf("child %q: %w", recipe.Name, ErrStopped)
	}
	m.seq++
	c := &child{Child: recipe, top: longest(recipe.Backoff), seq: m.seq, pos: -1, since: now}
	if m.phase == notStarted {
		c.initial = true
		m.initial = append(m.initial, c)
	}
	m.link(c)
	if m.phase == keeping {
		m.start(now, c)
	}
	return nil
}

// link appends c to the children.
func (m *machine) link(c *child) {
	c.prev = m.last
	if m.last == nil {
		m.first = c
	} else {
		m.last.next = c
	}
	m.last = c
	m.names[c.Name] = c
}

// reset prepares the state machine for the next call of Serve. Its phase must be over, and none of
// its children may be alive. All children start as new ones, but the count of their incarnations
// continues. Children that were added before the first Serve come back even if they are Temporary
// and have ended, but not if they were removed or another child has their name. Children that were
// added later come back only if they are still in the list.
func (m *machine) reset() {
	var list []*child
	for _, c := range m.initial {
		if other := m.names[c.Name]; c.afterEnd != thenRemove && (other == nil || other == c) {
			list = append(list, c)
		}
	}
	initial := slices.Clone(list)
	for c := m.first; c != nil; c = c.next {
		if !c.initial {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *child) int { return cmp.Compare(a.seq, b.seq) })
	seq := m.seq
	*m = *newMachine(m.path, m.spec)
	m.seq, m.initial = seq, initial
	for _, c := range list {
		*c = child{
			Child: c.Child, top: c.top, seq: c.seq, initial: c.initial, pos: -1,
			incarnation: c.incarnation, patience: c.patience,
		}
		m.link(c)
	}
}

// begin starts all children, in order and at once.
func (m *machine) begin(now time.Duration) {
	m.phase = keeping
	for c := m.first; c != nil; c = c.next {
		m.start(now, c)
	}
}

func (m *machine) start(now time.Duration, c *child) {
	if c.alive {
		panic("penstock: BUG: supervise: a second incarnation of child " + c.Name)
	}
	c.state, c.alive, c.afterEnd = Running, true, thenJudge
	c.incarnation++
	c.since = now
	m.alive++
	// Report this before the child runs, so that the events of a nested supervisor come later.
	m.report(Event{Kind: Started, Child: c.Name, Incarnation: c.incarnation})
	m.out = append(m.out, command{kind: commandStart, child: c})
}

// ended handles the return of an incarnation (one run) of c: it decides whether and when c is
// restarted.
func (m *machine) ended(now time.Duration, c *child, err error) {
	state, ran := c.state, now-c.since
	if state == Halting {
		heap.Remove(&m.stops, c.pos)
	}
	m.alive--
	c.alive, c.err, c.state = false, err, Idle
	told := len(m.out) // index of the event, which the code below completes
	m.report(Event{Kind: Ended, Child: c.Name, Incarnation: c.incarnation, Err: err, Ran: ran})
	again, delay := false, time.Duration(0)
	switch {
	case c.afterEnd == thenRemove:
		m.unlink(c)
	case m.phase >= ending:
		c.state = Finished
	case state != Running: // it was told to stop
		again = m.wasStopped(now, c)
	default:
		again, delay = m.judge(now, c, err, ran)
	}
	c.since = now
	m.out[told].event.Restart, m.out[told].event.Delay = again, delay
	m.advance(now)
}

// wasStopped handles the return of a child that was told to stop, by Restart or because the
// strategy restarts it together with a failed child. It reports whether the child is restarted.
func (m *machine) wasStopped(now time.Duration, c *child) bool {
	switch {
	case c.afterEnd == thenJudge && c.Restart == Temporary:
		m.unlink(c)
		return false
	case c.afterEnd == thenRestart && !m.inGroup(c):
		m.wait(c, now)
	}
	return true
}

func (m *machine) inGroup(c *child) bool { return m.phase == regrouping && c.seq >= m.mark }

// judge handles the return of a child that was not told to stop. It reports whether and when the
// child is restarted.
func (m *machine) judge(now time.Duration, c *child, err error,
	ran time.Duration) (again bool, delay time.Duration) {
	wanted := c.Child.Restart == Permanent || c.Child.Restart == Transient && err != nil
	if err != nil {
		m.remember(c, err)
	}
	switch {
	case stops(err) || !wanted:
		m.finish(now, c, err)
		return false, 0
	case asks(err, ErrEscalate):
		m.escalate(now, c, "it returned ErrEscalate")
		return false, 0
	}
	delay, ok := m.delay(now, c, err, ran)
	switch {
	case !ok:
		m.escalate(now, c, "its backoff has given up")
		return false, 0
	case m.inGroup(c): // one restart, however many children of the group fail meanwhile
		m.due = max(m.due, plus(now, delay))
	case !m.recent.allow(now):
		m.escalate(now, c,
			fmt.Sprintf("more than %d restarts within %v", m.recent.Max, m.recent.Within))
		return false, 0
	case m.spec.Strategy == OneForOne:
		m.wait(c, plus(now, delay))
	case m.spec.Strategy == OneForAll:
		m.regroup(now, 0, plus(now, delay))
	default:
		m.regroup(now, c.seq, plus(now, delay))
	}
	return true, delay
}

// delay returns the delay before the restart of c. It returns false if the policy of c has given
// up.
func (m *machine) delay(now time.Duration, c *child, err error,
	ran time.Duration) (time.Duration, bool) {
	if m.spec.Decay != nil {
		m.resume(now)
		if pause := m.decay.failed(*m.spec.Decay, now, m.spec.Rand); pause > 0 {
			m.report(Event{Kind: Paused, Delay: pause})
		}
		// If another pause starts meanwhile, startTime delays c until its end.
		return max(0, m.decay.gate-now), true
	}
	if ran >= c.stableAfter() {
		c.backoff, c.delay = backoff.State{}, 0
	}
	d, next, ok := c.Backoff.Next(c.backoff, m.spec.Rand)
	switch {
	case err != nil && ok:
		c.backoff, c.delay = next, d
	case err == nil && !ok:
		return cmp.Or(c.delay, firstReturnDelay), true // only failures advance the policy
	}
	return d, ok
}

func (c *child) stableAfter() time.Duration {
	if c.StableAfter > 0 {
		return c.StableAfter
	}
	return max(c.top, plus(c.delay, c.delay))
}

// finish handles the end of a child that is not restarted.
func (m *machine) finish(now time.Duration, c *child, err error) {
	c.state = Finished
	if c.Significant {
		if stops(err) {
			err = nil
		} else if err != nil {
			err = named(c.Name, err)
		}
		m.stop(now, ErrStopped, err)
	}
	if c.Child.Restart == Temporary {
		m.unlink(c)
	}
}

// remember keeps err, the latest of the children's errors, for an EscalatedError.
func (m *machine) remember(c *child, err error) {
	const most = 8
	if len(m.errs) == most {
		m.errs = append(m.errs[:0], m.errs[1:]...)
	}
	m.errs = append(m.errs, named(c.Name, err))
}

// wait schedules the start of c. It starts at due, or later if Spec.Stagger or a pause of
// Spec.Decay demands it.
func (m *machine) wait(c *child, due time.Duration) {
	c.state, c.at = Waiting, due
	heap.Push(&m.waits, c)
	m.crowd = max(m.crowd, len(m.waits))
}

// tick does all due work: it starts children, reports stuck ones, and ends a pause. If the whole
// supervisor is being stopped and Spec.Shutdown has passed, it tells all remaining children to
// stop.
func (m *machine) tick(now time.Duration) {
	m.resume(now)
	for c := m.stops.First(); c != nil && c.at <= now; c = m.stops.First() {
		m.hang(now, c)
	}
	if m.phase == ending && !m.overdue && now >= m.deadline {
		m.overdue = true
		m.advance(now)
	}
	for c := m.waits.First(); c != nil && m.startTime(c) <= now; c = m.waits.First() {
		m.slot = max(m.startTime(c), now-catchUp*m.gap()) + m.gap()
		heap.Remove(&m.waits, c.pos)
		m.start(now, c)
	}
	if len(m.waits) == 0 {
		m.crowd = 0
	}
}

func (m *machine) resume(now time.Duration) {
	if m.decay.resume(now) {
		m.report(Event{Kind: Resumed})
	}
}

// catchUp bounds the restarts that happen at once if the supervisor itself was late. Normally there
// is a gap between two restarts. A late supervisor omits at most this number of gaps.
const catchUp = 10

// gap is the time between two restarts.
func (m *machine) gap() time.Duration {
	return min(m.spec.Stagger, m.spec.Spread/time.Duration(max(1, m.crowd)))
}

// startTime returns the earliest start of c, the first of the waiting children.
func (m *machine) startTime(c *child) time.Duration { return max(c.at, m.slot, m.decay.gate) }

// never is the time of the next step if there is none.
const never = time.Duration(math.MaxInt64)

// wake returns the time of the next tick, or never.
func (m *machine) wake() time.Duration {
	at := never
	if c := m.waits.First(); c != nil {
		at = m.startTime(c)
	}
	if c := m.stops.First(); c != nil {
		at = min(at, c.at)
	}
	if m.phase == ending && !m.overdue {
		at = min(at, m.deadline)
	}
	if m.decay.paused {
		at = min(at, m.decay.gate)
	}
	return at
}

func (m *machine) report(e Event) {
	e.Supervisor = m.path
	m.out = append(m.out, command{kind: commandReport, event: e})
}

// take returns the commands since the last call, and clears the list.
func (m *machine) take() []command {
	out := m.out
	m.out = nil
	return out
}
