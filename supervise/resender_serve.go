package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errRetry ends the context of a Fallback's incarnation.
var errRetry = errors.New("supervise: the first recipe is tried again")

// errStall ends the context of a child that stalled.
var errStall = errors.New("supervise: stalled: neither took nor settled a message for Limits.Stall")

// serving is what the goroutine of Serve keeps.
type serving[K comparable, M, R any] struct {
	*Resender[K, M, R]
	ctx    context.Context // of Serve
	path   string
	above  above
	nested bool

	begin  time.Duration // no incarnation before it
	stop   time.Duration // when the child that was told to stop is reported
	told   bool          // it was
	stuck  bool          // it was reported
	result error         // why Serve ends; nil: it goes on
	ending bool
	events []Event
}

// Serve runs the child, and another when it has died, until ctx ends (it returns its cause), the child returns ErrStop
// (nil) or ErrEscalate, or Backoff gives up (an *EscalatedError). What is held stays held. One Serve at a time.
//
// Like a Supervisor it leaves a child behind that does not return, with a *StuckError, unless it runs under one.
func (r *Resender[K, M, R]) Serve(ctx context.Context) error {
	r.mu.Lock()
	if !r.serving && r.home { // what an earlier Serve left behind has returned meanwhile
		r.live, r.home, r.err = nil, false, nil
		r.s.returned()
	}
	if r.serving || r.live != nil {
		r.mu.Unlock()
		return fmt.Errorf("resender %q: Serve: an earlier one, or its child, has not ended", r.name)
	}
	r.serving = true
	r.mu.Unlock()
	up, nested := ctx.Value(aboveKey{}).(above)
	s := &serving[K, M, R]{Resender: r, ctx: ctx, path: r.name, above: up, nested: nested, begin: r.now()}
	if nested {
		s.path = up.path + "/" + r.name
		up.needs(r.o.Limits.Shutdown + time.Second)
	}
	defer func() {
		r.mu.Lock()
		r.serving = false
		r.mu.Unlock()
	}()
	return s.loop()
}

func (s *serving[K, M, R]) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := s.now()
		s.comeHome(now)
		s.s.tick(now)
		start := s.decide(now)
		dead := s.s.dead
		s.s.dead = nil
		s.changedLocked()
		at, due := s.wakeAt()
		over := s.ending && (s.live == nil || s.stuck && !s.nested)
		left := s.live
		s.mu.Unlock()
		for _, e := range s.events {
			e.Time, e.Supervisor = s.epoch.Add(now), s.path
			s.o.OnEvent(e)
		}
		s.events = nil
		s.start(start)
		for _, h := range dead {
			_ = s.bury(context.WithoutCancel(s.ctx), h) // it comes back, with the error, when it is tried again
		}
		if over && left != nil {
			return errors.Join(s.result, &StuckError{s.path, []string{left.name}})
		}
		if over {
			return s.result
		}
		if len(dead) > 0 {
			continue // what was buried may have changed when to look next
		}
		timer.Stop()
		if due {
			timer.Reset(at - s.now())
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

// comeHome deals with a child that has returned. The caller holds mu, as in all that follows but start.
func (s *serving[K, M, R]) comeHome(now time.Duration) {
	if !s.home {
		return
	}
	l, err := s.live, s.err
	if l.cut && err == nil {
		err = errStall
	}
	s.live, s.home, s.err = nil, false, nil
	e := Event{Kind: Ended, Child: l.name, Incarnation: l.number, Err: err, Ran: now - l.begun}
	switch {
	case s.told && !l.cut || s.ending: // its end is what was asked for
		s.s.returned()
		s.begin = now
		e.Restart = !s.ending
	case stops(err):
		s.s.returned()
		s.ending = true
	case err == nil:
		e.Delay, e.Restart = s.s.returned(), true
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
		s.giveUp(l, "its backoff has no further wait", err)
	case asksToEscalate(err):
		s.giveUp(l, "it asked for that", err)
	default:
		e.Delay, e.Restart = delay, true
		s.begin = plus(now, delay)
	}
}

func (s *serving[K, M, R]) giveUp(l *run, reason string, err error) {
	s.ending = true
	s.result = &EscalatedError{Supervisor: s.path, Child: l.name, Reason: reason, Errs: []error{err}}
	s.events = append(s.events, Event{Kind: Escalated, Child: l.name, Err: s.result})
}

// decide says what is to be done with the child now; it returns the incarnation that start is to begin.
func (s *serving[K, M, R]) decide(now time.Duration) *run {
	if s.ctx.Err() != nil && !s.ending {
		s.ending, s.result = true, context.Cause(s.ctx)
	}
	switch l := s.live; {
	case l != nil && s.ending:
		s.tellToStop(now, context.Cause(s.ctx))
	case l != nil && s.s.stalled(now):
		l.cut = true
		s.tellToStop(now, errStall)
	case l != nil && s.detour.due(now):
		s.detour.goBack(now)
		s.tellToStop(now, errRetry)
	case l == nil && !s.ending && now >= s.begin:
		return s.born(now)
	}
	if s.told && !s.stuck && now >= s.stop {
		s.stuck = true
		s.events = append(s.events, Event{Kind: Stuck, Child: s.live.name, Incarnation: s.live.number, Ran: now - s.live.begun})
		if !s.ending {
			s.giveUp(s.live, "it did not stop in time, so it cannot be started again", errStall)
		}
	}
	return nil
}

func (s *serving[K, M, R]) tellToStop(now time.Duration, cause error) {
	if s.told {
		return
	}
	s.told, s.stop = true, plus(now, s.o.Limits.Shutdown)
	s.live.cancel(cause)
	s.events = append(s.events, Event{Kind: Stopping, Child: s.live.name, Incarnation: s.live.number, Err: cause})
}

func (s *serving[K, M, R]) born(now time.Duration) *run {
	if s.live != nil {
		panic("penstock: BUG: supervise: a second incarnation of the child of resender " + s.name)
	}
	l := &run{number: s.s.started(now), begun: now, over: make(chan struct{}), name: s.o.Child.Name}
	if s.detour.fallback {
		l.name, l.fallback = s.o.Fallback.Name, true
	}
	s.live = l
	s.events = append(s.events, Event{Kind: Started, Child: l.name, Incarnation: l.number})
	return l
}

// wakeAt is when the loop has to look again.
func (s *serving[K, M, R]) wakeAt() (at time.Duration, ok bool) {
	at, ok = s.s.wake()
	if s.told && s.live != nil { // it has stalled already; only the end of its time counts
		at, ok = s.stop, !s.stuck
		if len(s.s.delayed) > 0 && (!ok || s.s.delayed[0].due < at) {
			at, ok = s.s.delayed[0].due, true
		}
	}
	if s.live == nil && !s.ending && (!ok || s.begin < at) {
		at, ok = s.begin, true
	}
	if d := s.detour; s.live != nil && !s.told && d.fallback && d.back > 0 && (!ok || plus(d.since, d.back) < at) {
		at, ok = plus(d.since, d.back), true
	}
	return at, ok
}

// start begins the incarnation l; nil: none.
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
	go guard(s.name+"/"+l.name, func() error {
		work, err := recipe.New()
		if err != nil {
			return fmt.Errorf("make an incarnation: %w", err)
		}
		return work(ctx, &Inbox[K, M, R]{s.Resender, l})
	}, func(err error) {
		cancel(nil)
		s.mu.Lock()
		s.home, s.err = true, err
		close(l.over)
		s.mu.Unlock()
		s.wake()
	})
}
