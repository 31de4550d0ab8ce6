package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errRetry is the cause with which the context of a Fallback ends.
var errRetry = errors.New("supervise: Options.Child is tried again")

// errStall is the cause with which the context of a stalled child ends.
var errStall = errors.New("supervise: the child stalled: it neither took nor settled a message " +
	"for Limits.Stall")

// serving is the state of one call of Serve.
type serving[K comparable, M, R any] struct {
	*Resender[K, M, R]
	ctx    context.Context // context of Serve
	path   string
	tell   func(context.Context, Event)
	nested bool

	begin  time.Duration // earliest start of the next incarnation
	told   bool          // the child was told to stop
	stop   time.Duration // when the child counts as stuck
	stuck  bool          // it was reported as stuck
	result error         // result of Serve, if ending is set
	ending bool
	events []Event
}

// Serve runs the child, and restarts it when it has crashed or has returned nil. It returns the
// cause if ctx ends, nil if the child returns ErrStop, and an *EscalatedError if the Resender gives
// up: the child returns ErrEscalate, Backoff gives up, or the child is stuck when it is to be
// restarted. The messages stay held. Serve may be called again after it has returned.
//
// While a child is stuck, Serve returns or waits as [Supervisor.Serve] does.
func (r *Resender[K, M, R]) Serve(ctx context.Context) error {
	r.refuseZero()
	r.mu.Lock()
	if !r.serving && (r.live == nil || r.returned) {
		// A stuck child of an earlier Serve may have returned meanwhile, or a policy has panicked.
		r.live, r.returned, r.err = nil, false, nil
		r.s.stopped()
	}
	if r.serving || r.live != nil {
		r.mu.Unlock()
		return fmt.Errorf("resender %q: Serve: another call, or its child, has not returned",
			r.name)
	}
	r.serving = true
	r.mu.Unlock()
	up, nested := supervised(ctx)
	s := &serving[K, M, R]{Resender: r, ctx: ctx, path: r.name, tell: up.hook(r.o.OnEvent),
		nested: nested, begin: r.now()}
	if nested {
		s.path = up.path + "/" + r.name
		up.needs(plus(r.o.Limits.Shutdown, time.Second))
	}
	defer s.close()
	return s.loop()
}

func (s *serving[K, M, R]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = false
	switch {
	case s.live == nil:
	case s.live.cancel == nil: // OnEvent has panicked before the start was carried out
		s.live = nil
	default: // the child is stuck, or OnEvent, DeadLetter or a policy has panicked
		s.live.cancel(ErrStopped)
	}
}

func (s *serving[K, M, R]) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p := s.step()
		for _, e := range s.events {
			e.Time, e.Supervisor = s.epoch.Add(p.now), s.path
			s.tell(s.ctx, e)
		}
		s.events = nil
		s.start(p.start)
		for range p.dead {
			if h := s.nextDead(); h != nil {
				// after an error, deadLetter is called again later
				_ = s.deadLetter(context.WithoutCancel(s.ctx), h)
			}
		}
		if p.over && p.left != nil {
			return errors.Join(s.result, &StuckError{s.path, []string{p.left.name}})
		}
		if p.over {
			return s.result
		}
		if p.dead > 0 {
			continue // DeadLetter may have changed the next wake-up
		}
		timer.Stop()
		if p.wakeAt < never {
			timer.Reset(p.wakeAt - s.now())
		}
		stop := s.ctx.Done()
		if s.ending {
			stop = nil
		}
		select {
		case <-stop:
		case <-s.wakeUp:
		case <-timer.C:
		}
	}
}

// servingStep is the result of one step of Serve.
type servingStep struct {
	now    time.Duration
	start  *run          // the incarnation to start, or nil
	dead   int           // messages to dead-letter before the next step
	wakeAt time.Duration // time of the next step, or never
	over   bool          // the child has returned or is stuck, and is not restarted
	left   *run          // the incarnation that has not returned, or nil
}

// step brings the state up to date.
func (s *serving[K, M, R]) step() (p servingStep) {
	s.mu.Lock()
	defer s.mu.Unlock() // also if a policy panics
	p.now = s.now()
	s.handleReturn(p.now)
	s.s.tick(p.now)
	p.start = s.decide(p.now)
	p.dead = len(s.s.dead)
	s.changedLocked()
	p.wakeAt = s.wakeAt()
	p.over = s.ending && (s.live == nil || s.stuck && !s.nested)
	p.left = s.live
	return p
}

// nextDead removes the first message from the list of messages to dead-letter. It returns the
// message, or nil if the list is empty or the message has been acknowledged meanwhile.
func (s *serving[K, M, R]) nextDead() *held[K, M, R] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.s.dead) == 0 {
		return nil
	}
	h := s.s.dead[0]
	s.s.dead = s.s.dead[1:]
	if h.list != deadLettering {
		return nil
	}
	return h
}

// handleReturn handles a child that has returned. The callers of handleReturn, and of the functions
// below down to wakeAt, hold mu.
func (s *serving[K, M, R]) handleReturn(now time.Duration) {
	if !s.returned {
		return
	}
	l, err := s.live, s.err
	if l.cut && err == nil {
		err = errStall
	}
	s.live, s.returned, s.err = nil, false, nil
	e := Event{Kind: Ended, Child: l.name, Incarnation: l.number, Err: err, Ran: now - l.begun}
	switch {
	case s.told && !l.cut || s.ending: // it was told to stop
		s.s.stopped()
		s.begin = now
		e.Restart = !s.ending
	case stops(err):
		s.s.stopped()
		s.ending = true
	case err == nil:
		e.Delay, e.Restart = s.s.returned(now), true
		s.begin = plus(now, e.Delay)
	default:
		s.crashed(now, l, err, &e)
	}
	s.told, s.stuck = false, false
	s.events = append(s.events, e)
}

func (s *serving[K, M, R]) crashed(now time.Duration, l *run, err error, e *Event) {
	recovered := s.s.streak == 0
	delay, ok := s.s.crashed(now, now-l.begun, err)
	s.detour.crashed(now, recovered)
	switch {
	case !ok:
		s.giveUp(l, "its backoff has given up", err)
	case asks(err, ErrEscalate):
		s.giveUp(l, "it returned ErrEscalate", err)
	default:
		e.Delay, e.Restart = delay, true
		s.begin = plus(now, delay)
	}
}

func (s *serving[K, M, R]) giveUp(l *run, reason string, err error) {
	s.ending = true
	s.result = &EscalatedError{Supervisor: s.path, Child: l.name, Reason: reason,
		Errs: []error{err}}
	s.events = append(s.events, Event{Kind: Escalated, Child: l.name, Err: s.result})
}

// decide stops or starts the child if that is due. It returns the incarnation to start, or nil.
func (s *serving[K, M, R]) decide(now time.Duration) *run {
	if s.ctx.Err() != nil && !s.ending {
		s.ending, s.result = true, context.Cause(s.ctx)
	}
	switch l := s.live; {
	case l == nil && !s.ending && now >= s.begin:
		return s.born(now)
	case l == nil || s.told:
	case s.ending:
		s.tellToStop(now, context.Cause(s.ctx))
	case s.s.stalled(now):
		l.cut = true
		s.tellToStop(now, errStall)
	case s.detour.due(now):
		s.tellToStop(now, errRetry)
	}
	if s.told && !s.stuck && now >= s.stop {
		s.stuck = true
		s.events = append(s.events,
			Event{Kind: Stuck, Child: s.live.name, Incarnation: s.live.number,
				Ran: now - s.live.begun})
		if !s.ending {
			s.giveUp(s.live, "it did not stop in time, so it cannot be restarted", errStall)
		}
	}
	return nil
}

func (s *serving[K, M, R]) tellToStop(now time.Duration, cause error) {
	s.told, s.stop = true, plus(now, s.o.Limits.Shutdown)
	s.live.cancel(cause)
	s.events = append(s.events,
		Event{Kind: Stopping, Child: s.live.name, Incarnation: s.live.number, Err: cause})
}

func (s *serving[K, M, R]) born(now time.Duration) *run {
	if s.live != nil {
		panic("penstock: BUG: supervise: a second incarnation of the child of resender " + s.name)
	}
	if s.detour.due(now) {
		s.detour.goBack(now)
	}
	l := &run{number: s.s.started(now), begun: now, over: make(chan struct{}), name: s.o.Child.Name}
	if s.detour.fallback {
		l.name, l.fallback = s.o.Fallback.Name, true
	}
	s.live = l
	s.events = append(s.events, Event{Kind: Started, Child: l.name, Incarnation: l.number})
	return l
}

// wakeAt returns the time of the next check of the state, or never.
func (s *serving[K, M, R]) wakeAt() time.Duration {
	at := s.s.wake()
	if s.told && s.live != nil { // only the end of Shutdown and delayed messages count
		at = never
		if !s.stuck {
			at = s.stop
		}
		if h := s.s.delayed.First(); h != nil {
			at = min(at, h.due)
		}
	}
	if s.live == nil && !s.ending {
		at = min(at, s.begin)
	}
	if d := s.detour; s.live != nil && !s.told && d.fallback && d.back > 0 {
		at = min(at, plus(d.since, d.back))
	}
	return at
}

// start starts the incarnation l. It does nothing if l is nil.
func (s *serving[K, M, R]) start(l *run) {
	if l == nil {
		return
	}
	recipe := s.o.Child
	if l.fallback {
		recipe = s.o.Fallback
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.ctx))
	s.mu.Lock()
	l.cancel = cancel
	s.mu.Unlock()
	go guard(s.name+"/"+l.name, false, func() error {
		work, err := recipe.New()
		if err != nil {
			return fmt.Errorf("make an incarnation: %w", err)
		}
		return work(ctx, &Inbox[K, M, R]{s.Resender, l})
	}, func(err error) {
		cancel(nil)
		s.mu.Lock()
		s.returned, s.err = true, err
		close(l.over)
		s.mu.Unlock()
		s.wake()
	})
}
