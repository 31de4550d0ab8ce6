//penstock:pure

package supervise

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// State is where a child, or a supervisor, is in its life.
type State uint8

// The states.
const (
	Idle    State = iota // not started yet, or stopped until others have stopped too
	Waiting              // for its next start
	Running
	Halting  // its context has ended; it has not returned yet
	Hanging  // the same for longer than its Shutdown
	Finished // ended and not to be started again
)

// String returns the name.
func (s State) String() string {
	return nameOf(s, "idle", "waiting", "running", "stopping", "stuck", "done")
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// child is what the machine knows of a child.
type child struct {
	Child
	top        time.Duration // the longest wait of its policy
	seq        uint64        // its place among the children
	prev, next *child

	state       State
	alive       bool // an incarnation has started and not returned
	then        follow
	at          time.Duration // what the queue that holds it goes by: its start, or the end of its Shutdown
	pos         int           // in that queue
	incarnation uint64
	since       time.Duration // of its start, or of its end
	backoff     backoff.State
	delay       time.Duration // the last
	err         error         // of the last end
	patience    time.Duration // what Shutdown 0 means for this child
}

// follow is what comes after the end of an incarnation that was told to stop.
type follow uint8

const (
	thenJudge   follow = iota // it ended on its own, or its group decides
	thenRestart               // by Restart
	thenRemove
)

// phase is what the supervisor as a whole is doing.
type phase uint8

const (
	unborn     phase = iota
	keeping          // everybody running
	regrouping       // children from the mark on stop, to start again in order
	ending
	over
)

// command is what the runtime is to do, in order.
type command struct {
	kind  commandKind
	child *child
	cause error // of a cancel
	event Event
}

type commandKind uint8

const (
	commandStart commandKind = iota
	commandCancel
	commandGone // the child is no longer in the tree
	commandTell
)

// machine decides when who starts and stops, in which order, and when it is enough. Time comes in as the Duration since
// the supervisor began, what is to be done goes out as commands.
type machine struct {
	path        string
	spec        Spec
	phase       phase
	first, last *child
	names       map[string]*child
	seq         uint64
	alive       int
	waits       queue // Waiting
	stops       queue // Halting

	slot   time.Duration // no staggered restart before it
	crowd  int           // the most that waited since nobody did
	recent recent
	decay  decaying

	mark     uint64        // regrouping: the first seq of the group
	due      time.Duration // regrouping: no start of the group before it
	cursor   *child        // regrouping, ending: nobody behind it is left to be stopped one by one
	deadline time.Duration // ending: from then on all at once
	hurry    bool
	cause    error // ending: of the children's contexts
	result   error // ending: what Serve returns
	errs     []error

	out []command
}

func newMachine(path string, spec Spec) *machine {
	return &machine{path: path, spec: spec, names: map[string]*child{}, recent: recent{Intensity: spec.Intensity}}
}

// add takes a child in; a supervisor that has begun starts it at once.
func (m *machine) add(now time.Duration, recipe Child) error {
	recipe, err := recipe.withDefaults(m.spec)
	switch {
	case err != nil:
		return err
	case m.names[recipe.Name] != nil:
		return fmt.Errorf("child %q: there is one of that name", recipe.Name)
	case m.phase >= ending:
		return fmt.Errorf("child %q: %w", recipe.Name, ErrStopped)
	}
	m.seq++
	c := &child{Child: recipe, top: longest(recipe.Backoff), seq: m.seq, pos: -1, prev: m.last, since: now}
	if m.last == nil {
		m.first = c
	} else {
		m.last.next = c
	}
	m.last = c
	m.names[c.Name] = c
	if m.phase == keeping {
		m.start(now, c)
	}
	return nil
}

// begin starts everybody, in order and at once.
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
	c.state, c.alive, c.then = Running, true, thenJudge
	c.incarnation++
	c.since = now
	m.alive++
	m.out = append(m.out, command{kind: commandStart, child: c})
	m.tell(Event{Kind: Started, Child: c.Name, Incarnation: c.incarnation})
}

// ended takes note of an incarnation that has returned err.
func (m *machine) ended(now time.Duration, c *child, err error) {
	state, ran := c.state, now-c.since
	if state == Halting {
		m.stops.drop(c)
	}
	m.alive--
	c.alive, c.err, c.state = false, err, Idle
	told := len(m.out) // what follows from this end is told after it
	m.tell(Event{Kind: Ended, Child: c.Name, Incarnation: c.incarnation, Err: err, Ran: ran})
	again, delay := false, time.Duration(0)
	switch {
	case c.then == thenRemove:
		m.unlink(c)
	case m.phase >= ending:
		c.state = Finished
	case state != Running: // it was told to
		again = m.wasStopped(now, c)
	default:
		again, delay = m.judge(now, c, err, ran)
	}
	c.since = now
	m.out[told].event.Restart, m.out[told].event.Delay = again, delay
	m.advance(now)
}

// wasStopped decides about a child that a group, or Restart, has stopped, and says whether it starts again.
func (m *machine) wasStopped(now time.Duration, c *child) bool {
	switch {
	case c.then == thenJudge && c.Restart == Temporary:
		m.unlink(c)
		return false
	case c.then == thenRestart && !m.inGroup(c):
		m.wait(c, now)
	}
	return true
}

func (m *machine) inGroup(c *child) bool { return m.phase == regrouping && c.seq >= m.mark }

// judge decides about a child that ended by itself, and says whether and when it starts again.
func (m *machine) judge(now time.Duration, c *child, err error, ran time.Duration) (again bool, delay time.Duration) {
	wanted := c.Child.Restart == Permanent || c.Child.Restart == Transient && err != nil
	if err != nil {
		m.remember(c, err)
	}
	switch {
	case stops(err) || !wanted:
		m.finish(now, c, err)
		return false, 0
	case asksToEscalate(err):
		m.escalate(now, c, "it asked for that")
		return false, 0
	}
	delay, ok := m.delay(now, c, err, ran)
	switch {
	case !ok:
		m.escalate(now, c, "its backoff has no further wait")
		return false, 0
	case m.inGroup(c): // one restart, however many of the group crash meanwhile
		m.due = max(m.due, now+delay)
	case !m.recent.allow(now):
		m.escalate(now, c, fmt.Sprintf("more than %d restarts within %v", m.recent.Max, m.recent.Within))
		return false, 0
	case m.spec.Strategy == OneForOne:
		m.wait(c, now+delay)
	case m.spec.Strategy == OneForAll:
		m.regroup(now, 0, now+delay)
	default:
		m.regroup(now, c.seq, now+delay)
	}
	return true, delay
}

// delay returns the wait before c starts again; false: its policy has given up.
func (m *machine) delay(now time.Duration, c *child, err error, ran time.Duration) (time.Duration, bool) {
	if m.spec.Decay != nil {
		m.resume(now)
		if pause := m.decay.failed(*m.spec.Decay, now, m.spec.Rand); pause > 0 {
			m.tell(Event{Kind: Paused, Delay: pause})
		}
		return max(0, m.decay.gate-now), true // what a pause begun anew adds is the gate's affair
	}
	if ran >= c.stableAfter() {
		c.backoff, c.delay = backoff.State{}, 0
	}
	d, next, ok := c.Backoff.Next(c.backoff, m.spec.Rand)
	switch {
	case err != nil && ok:
		c.backoff, c.delay = next, d
	case err == nil && !ok:
		return c.delay, true // a clean end uses up nothing
	}
	return d, ok
}

func (c *child) stableAfter() time.Duration {
	if c.StableAfter > 0 {
		return c.StableAfter
	}
	twice := c.delay * 2
	if twice < c.delay {
		twice = c.delay
	}
	return max(c.top, twice)
}

// finish is for a child that will not start again.
func (m *machine) finish(now time.Duration, c *child, err error) {
	c.state = Finished
	if c.Significant {
		if stops(err) {
			err = nil
		} else if err != nil {
			err = fmt.Errorf("%s: %w", c.Name, err)
		}
		m.stop(now, ErrStopped, err)
	}
	if c.Child.Restart == Temporary {
		m.unlink(c)
	}
}

// remember keeps the last of the children's errors for an escalation.
func (m *machine) remember(c *child, err error) {
	const most = 8
	if len(m.errs) == most {
		m.errs = append(m.errs[:0], m.errs[1:]...)
	}
	if _, named := err.(*PanicError); !named {
		err = fmt.Errorf("%s: %w", c.Name, err)
	}
	m.errs = append(m.errs, err)
}

// wait lets c start at due, or as soon after it as the stagger has room.
func (m *machine) wait(c *child, due time.Duration) {
	c.state, c.at = Waiting, due
	m.waits.put(c)
	m.crowd = max(m.crowd, len(m.waits))
}

// tick does what is due at now.
func (m *machine) tick(now time.Duration) {
	m.resume(now)
	for c := m.stops.first(); c != nil && c.at <= now; c = m.stops.first() {
		m.hang(now, c)
	}
	if m.phase == ending && !m.hurry && now >= m.deadline {
		m.hurry = true
		m.advance(now)
	}
	for c := m.waits.first(); c != nil && m.turn(c) <= now; c = m.waits.first() {
		m.slot = max(m.turn(c), now-catchUp*m.gap()) + m.gap()
		m.waits.drop(c)
		m.start(now, c)
	}
	if len(m.waits) == 0 {
		m.crowd = 0
	}
}

func (m *machine) resume(now time.Duration) {
	if m.decay.resume(now) {
		m.tell(Event{Kind: Resumed})
	}
}

// catchUp is how many slots of the stagger may be made up for when the supervisor itself was late.
const catchUp = 10

// gap is the time between two restarts.
func (m *machine) gap() time.Duration {
	return min(m.spec.Stagger, m.spec.Spread/time.Duration(max(1, m.crowd)))
}

// turn is when c, the first of those that wait, may start.
func (m *machine) turn(c *child) time.Duration { return max(c.at, m.slot, m.decay.gate) }

// wake is when tick has to be called next.
func (m *machine) wake() (at time.Duration, ok bool) {
	sooner := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if c := m.waits.first(); c != nil {
		sooner(m.turn(c))
	}
	if c := m.stops.first(); c != nil {
		sooner(c.at)
	}
	if m.phase == ending && !m.hurry {
		sooner(m.deadline)
	}
	if m.decay.paused {
		sooner(m.decay.gate)
	}
	return at, ok
}

func (m *machine) tell(e Event) {
	e.Supervisor = m.path
	m.out = append(m.out, command{kind: commandTell, event: e})
}

// take hands the commands over.
func (m *machine) take() []command {
	out := m.out
	m.out = nil
	return out
}
