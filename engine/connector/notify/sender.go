package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/rate"
)

const (
	visitSize    = 8                     // deliveries of a host sent before other hosts are visited
	skipSize     = 256                   // deliveries of a down host that one visit skips or sends
	pageSize     = 1000                  // hosts read from the store at once
	pruneEvery   = 20                    // refreshes between two deletions of ended deliveries
	stopGrace    = 5 * time.Second       // time after a stop in which in-flight attempts may end
	pressure     = 10                    // percent of free space below which less history is kept
	visitsAtOnce = 64                    // visits before the results of attempts are processed
	roomPause    = 10 * time.Millisecond // wait before a lane without room is visited again
	maxRecording = 64                    // lanes with skipped times that are being stored
	windowLasts  = time.Minute           // a lane that will be idle for longer loses its window
	lateForSkip  = time.Minute           // skip an attempt if its successor has been due for longer
)

// pruneTime bounds the time that maintain spends on deleting ended deliveries. If there are more of
// them, the next call of maintain continues.
const pruneTime = 100 * time.Millisecond

var errStopping = errors.New("penstock stops")

// sender is the dispatcher: it sends the parked deliveries that are due. A single goroutine calls
// run, and only this goroutine uses the lanes (the states of hosts). Other goroutines call work and
// make the attempts.
type sender struct {
	sink    *Sink
	store   *parked.Store
	pace    rate.GCRA // rate limit of each host
	jobs    chan job
	ended   chan ended // has room for every attempt
	skips   chan skips
	stored  chan *lane // has room for every lane that is recording
	woken   chan struct{}
	lanes   laneSet
	round   round // finds hosts that have no lane
	due     laneHeap
	visits  uint64
	slots   attemptSlots
	held    []*lane // lanes of slow hosts that wait for the share of slow hosts, in order
	storing int     // lanes that are recording, at most maxRecording
	version int64
	rounds  int // number of calls of maintain

	attempts context.Context // of in-flight attempts; ends at most stopGrace after run's context
	stop     context.CancelCauseFunc
	workers  atomic.Int64
	rested   chan struct{} // closed when all workers have ended

	mu      sync.Mutex // guards the fields below
	added   map[int64]parked.Host
	waiting []chan struct{} // each is closed as soon as nothing is due or in flight
}

// job is an attempt to make.
type job struct {
	*attempt
	delivery *parked.Delivery
	permit   limit.Permit
	ticket   breaker.Ticket
	counted  bool // the circuit has allowed the attempt and expects its outcome
	probe    bool
}

// skips has changes of deliveries to one host. Each change records planned attempts or polls that
// were not made, because the host was down, or because penstock was late or was not running.
type skips struct {
	lane    *lane
	changes []parked.Change
}

// ended is an attempt that has ended, with its result.
type ended struct {
	job
	progress parked.Progress
	result   result
}

func newSender(s *Sink) *sender {
	free := newAttemptSlots(s.o.Attempts)
	most := free.attempts + free.extra
	out := &sender{
		sink:   s,
		store:  s.store,
		pace:   s.o.Limit.pace(),
		jobs:   make(chan job, most),
		ended:  make(chan ended, most),
		skips:  make(chan skips, maxRecording),
		stored: make(chan *lane, maxRecording),
		woken:  make(chan struct{}, 1),
		lanes:  newLaneSet(s.o.Hosts, s.o.Allow.Patterns(), time.Now()),
		rested: make(chan struct{}),
		slots:  free,
	}
	out.attempts, out.stop = context.WithCancelCause(context.Background())
	out.workers.Store(int64(most))
	return out
}

// add tells the dispatcher that hosts have new or changed deliveries. It does not block.
func (s *sender) add(hosts []parked.Host) {
	s.mu.Lock()
	if s.added == nil {
		s.added = make(map[int64]parked.Host)
	}
	for _, h := range hosts {
		if old, ok := s.added[h.ID]; !ok || h.Due.Before(old.Due) {
			s.added[h.ID] = h
		}
	}
	s.mu.Unlock()
	s.wake()
}

func (s *sender) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // already woken
	}
}

// awaitIdle waits until no delivery is due or in flight.
func (s *sender) awaitIdle(ctx context.Context) error {
	quiet := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, quiet)
	s.mu.Unlock()
	s.wake()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run sends due deliveries until ctx ends. It returns an error if the store fails.
func (s *sender) run(ctx context.Context) error {
	if err := s.reload(ctx); err != nil {
		return endOf(ctx, err)
	}
	tick := time.NewTicker(s.sink.refresh)
	defer tick.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		if err := s.dispatch(ctx, now); err != nil {
			return endOf(ctx, err)
		}
		s.notifyIdle(now)
		timer.Reset(s.pause(now))
		select {
		case <-ctx.Done(): // the final counts include changes of other processes
			return s.store.Refresh(context.WithoutCancel(ctx))
		case e := <-s.ended:
			s.end(e)
		case l := <-s.stored:
			s.storing--
			l.absent = present
			s.due.schedule(l, time.Now())
		case <-s.woken:
		case <-timer.C:
		case <-tick.C:
			if err := s.maintain(ctx); err != nil {
				return endOf(ctx, err)
			}
		}
	}
}

// endOf returns err, or nil if ctx has ended: err may then be a consequence of that, and the
// goroutine ends anyway.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pause returns the time until run must call dispatch again, unless an event comes earlier.
func (s *sender) pause(now time.Time) time.Duration {
	switch {
	case len(s.held) > 0 && !s.slots.isFullFor(s.held[0]):
		return 0
	case s.slots.isFull():
		return s.slots.untilAged(now)
	case len(s.due) == 0:
		return s.round.until(&s.lanes, now)
	}
	return min(max(0, s.due[0].due.Sub(now)), s.round.until(&s.lanes, now))
}

// dispatch starts the due attempts of at most visitsAtOnce lanes (hosts with parked deliveries),
// while the limit on attempts allows more.
func (s *sender) dispatch(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	added := s.added
	s.added = nil
	s.mu.Unlock()
	for _, h := range added {
		s.meet(h, now)
	}
	if err := s.admit(ctx, now); err != nil {
		return err
	}
	s.slots.age(now)
	for range visitsAtOnce {
		if ctx.Err() != nil {
			break
		}
		l := s.next(now)
		if l == nil {
			break
		}
		if s.slots.isFullFor(l) {
			l.absent, l.full = held, true
			s.held = append(s.held, l)
			continue
		}
		if err := s.visit(ctx, l, now); err != nil {
			return err
		}
	}
	return nil
}

// next returns the lane (the state of a host) to be visited next. It returns nil if none is due, or
// if no attempt may begin. If the slow hosts have used up their share of the attempts, their lanes
// are held. When this share has room again, a held lane comes first.
func (s *sender) next(now time.Time) *lane {
	switch {
	case len(s.held) > 0 && !s.slots.isFullFor(s.held[0]):
		l := s.held[0]
		s.release(l)
		return l
	case s.slots.isFull() || len(s.due) == 0 || s.due[0].due.After(now):
		return nil
	}
	l := s.due[0]
	s.due.remove(l)
	return l
}

// release removes a lane from the held ones, so that it can be scheduled again.
func (s *sender) release(l *lane) {
	l.absent = present
	s.held = slices.DeleteFunc(s.held, func(other *lane) bool { return other == l })
}

// visit starts or skips the attempts of the due deliveries to a lane's host, and schedules the next
// visit of the lane (the state of the host).
func (s *sender) visit(ctx context.Context, l *lane, now time.Time) error {
	s.visits++
	l.visited = s.visits
	size := visitSize
	if l.isDown() {
		size = skipSize
	}
	most := size + len(l.inFlight)
	found, err := s.store.Due(ctx, l.id, now, most)
	if err != nil {
		return fmt.Errorf("parked store: %w", err)
	}
	var passed []parked.Change
	full := false
	for _, d := range found {
		if slices.Contains(l.inFlight, d.ID) {
			continue
		}
		if n := d.Overtaken(d.Schedule(s.sink.o.schedule), now, lateForSkip); n > 0 {
			const reason = "not sent: penstock was not running or late"
			passed = append(passed, s.skip(d, n, now, reason))
			continue
		}
		started, skip := s.begin(l, d, now)
		if skip {
			reason := fmt.Sprintf(
				"not sent: %s down since %s: %s", l.name, l.since.UTC().Format(time.RFC3339),
				l.reason,
			)
			passed = append(passed, s.skip(d, 1, now, reason))
		} else if !started {
			full = true
			break
		}
	}
	switch {
	case len(passed) > 0 && s.storing >= maxRecording:
		s.due.schedule(l, now.Add(roomPause))
		return nil
	case len(passed) > 0: // the lane is scheduled when recording ends
		l.absent = recording
		s.storing++
		s.skips <- skips{l, passed} // never blocks: has room for all
		return nil
	}
	return s.revisit(ctx, l, now, full, len(found) == most)
}

// revisit schedules the next visit of a lane, the state of a host. A visit starts the attempts that
// are due. If the last visit found no room for another attempt (full), the first of these rules
// that applies determines the time:
//
//   - If the rate limit delays the next attempt, the visit is when the limit allows the attempt.
//   - If an attempt is in flight, the visit is when an attempt ends.
//   - Otherwise the visit is after roomPause.
//
// If the lane is not full, it is visited at once if more deliveries may be due (more), otherwise
// when its next delivery is due.
func (s *sender) revisit(ctx context.Context, l *lane, now time.Time, full, more bool) error {
	l.full = full
	switch {
	case full && l.opens.After(now):
		s.due.schedule(l, l.opens)
		return nil
	case full && len(l.inFlight) > 0:
		return nil // scheduled at the end of an attempt
	case full:
		s.due.schedule(l, now.Add(roomPause))
		return nil
	case more:
		s.due.schedule(l, now)
		return nil
	}
	next, ok, err := s.store.Next(ctx, l.id, now)
	switch {
	case err != nil:
		return fmt.Errorf("parked store: %w", err)
	case ok:
		s.due.schedule(l, next)
	}
	s.forget(l, now)
	return nil
}

// forget frees memory of a lane if it is idle. A lane without deliveries is deleted. If its host is
// slow, the lane stays, so that the next attempts at the host still count as slow, and only its
// window (the state of the limit on attempts in flight) is deleted. A lane with deliveries loses
// its window if the next delivery is due later than windowLasts from now.
func (s *sender) forget(l *lane, now time.Time) {
	switch {
	case !l.isIdle(s.lanes.since(now)):
	case l.index < 0 && !l.slow:
		s.lanes.delete(l)
	case l.index < 0 || l.due.Sub(now) > windowLasts:
		l.window = nil
	}
}

// skip returns a change in which the next n planned times of a delivery pass without an attempt.
// The last attempt is never skipped. Skipped attempts get entries in the history. Skipped polls get
// none, because there may be thousands of them.
func (s *sender) skip(d *parked.Delivery, n int, now time.Time, reason string) parked.Change {
	c := parked.Change{Delivery: d, To: d.Progress}
	schedule := d.Schedule(s.sink.o.schedule)
	for range n {
		at := c.To.Due
		next, err := c.To.Next(schedule, parked.Skip, now, firstProbe)
		if err != nil {
			break // the last attempt is always sent
		}
		c.To = next
		if !d.Polled() {
			c.Entries = append(
				c.Entries, parked.Entry{At: at, Event: parked.Skip.String(), Detail: reason},
			)
		}
	}
	return c
}

// begin starts an attempt if the limits on attempts and the host's window and rate allow it. A host
// that is down gets only probes, last attempts, and attempts that an operator has forced. Last and
// forced attempts at such a host begin only if no other attempt at it is in flight. If skip is
// true, the planned time must pass without an attempt, because the host is down.
func (s *sender) begin(l *lane, d *parked.Delivery, now time.Time) (started, skip bool) {
	if s.slots.isFullFor(l) || len(l.inFlight) >= s.sink.o.PerHost {
		return false, false
	}
	if l.window == nil {
		window, err := limit.New(limit.Options{Window: window.AIMD{}, MaxWaiting: -1})
		if err != nil {
			window = limit.Fixed(s.sink.o.PerHost)
		}
		l.window = window
	}
	permit, ok := l.window.TryAcquire()
	if !ok {
		return false, false
	}
	paced, wait := s.pace.Take(l.paced, s.lanes.since(now), 1)
	l.opens = time.Time{}
	if wait > 0 {
		l.opens = now.Add(wait)
		permit.Done(limit.Ignored)
		return false, false
	}
	j := job{
		delivery: d,
		permit:   permit,
		probe:    l.isDown(),
	}
	j.ticket, j.counted = l.allow(s.lanes.since(now))
	if !j.counted { // down: only last and forced attempts, one at a time
		always := d.Forced || d.IsLast(d.Schedule(s.sink.o.schedule))
		if !always || len(l.inFlight) > 0 {
			permit.Done(limit.Ignored)
			return false, !always
		}
	}
	l.inFlight, l.paced = append(l.inFlight, d.ID), paced
	j.attempt = s.slots.begin(l, now)
	s.jobs <- j // never blocks: has room for all
	return true, false
}

// end updates the state of a host (its lane) after the end of an attempt: its window, its circuit
// breaker, and its next visit.
func (s *sender) end(e ended) {
	l, now := e.lane, time.Now()
	s.slots.end(e.attempt)
	wasDown := l.isDown()
	took := e.result.entry.Took
	switch {
	case e.result.host == noEvidence:
		e.permit.Done(limit.Ignored)
	case e.result.entry.Status == 0:
		e.permit.Done(limit.TimedOut)
	case e.result.entry.Status == 429 || e.result.entry.Status == 503:
		e.permit.Done(limit.Overloaded)
	default:
		e.permit.Done(limit.Success)
	}
	outcome := l.end(e.delivery.ID, e.result.host, e.probe, e.result.entry.Detail, now)
	if e.counted {
		l.settle(s.lanes.since(now), e.ticket, outcome)
	} else if outcome == breaker.Success {
		l.circuit = nil // a forced or last attempt shows that the host is up
	}
	if e.result.host != noEvidence {
		l.slow = e.result.host == hostDown || took > slowAfter
	}
	if isDown := l.isDown(); isDown != wasDown {
		if log := s.sink.host.Log(); isDown {
			s.sink.host.Count("hosts_went_down", 1)
			log.Warn("host is down", "host", l.name, "reason", l.reason)
		} else {
			log.Info("host is up again", "host", l.name)
		}
	}
	if l.absent == held && !l.slow {
		s.release(l)
	}
	switch due := e.progress.Due; {
	case l.absent != present:
	case l.full:
		s.due.schedule(l, later(now, l.opens))
	case e.progress.State == parked.Waiting && (l.index < 0 || due.Before(l.due)):
		s.due.schedule(l, due)
	case l.index < 0:
		s.forget(l, now)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// notifyIdle notifies the waiting goroutines if nothing is due or in flight.
func (s *sender) notifyIdle(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isBusy := s.slots.busy() > 0 || s.storing > 0 || len(s.held) > 0 || len(s.added) > 0 ||
		s.round.isBusy(&s.lanes, now)
	if isBusy || len(s.due) > 0 && !s.due[0].due.After(now) || len(s.waiting) == 0 {
		return
	}
	for _, l := range s.lanes.byID {
		if l.full { // its deliveries wait for the rate limit
			return
		}
	}
	for _, quiet := range s.waiting {
		close(quiet)
	}
	s.waiting = nil
}
