package retry

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"
)

// sequence carries out one retry: it asks the plan, the budget and the clock, and waits. One goroutine uses it.
type sequence struct {
	r    *Retrier
	mark *mark // of the attempt that runs or comes next
	plan
	tries    int // attempts that were made
	spent    int // what the running attempt has cost the budget
	spins    int // attempts in a row that needed no wait
	inPoll   bool
	granted  bool // the budget has granted the running attempt and waits for its end
	clocked  bool
	started  time.Time
	slept    time.Duration
	after    time.Duration // the hint that was too long
	timer    *time.Timer
	failures failures
}

// source is the source of chance for draws outside the policy.
func (r *Retrier) source() rand.Source {
	if r.Rand == nil {
		return runtimeSource{}
	}
	return r.Rand
}

// runtimeSource is the runtime's generator, safe for concurrent use.
type runtimeSource struct{}

// Uint64 implements rand.Source.
func (runtimeSource) Uint64() uint64 { return rand.Uint64() }

// begin asks for the first attempt of a watched call.
func (s *sequence) begin(ctx context.Context) (stop error) {
	s.mark = first(ctx, s.r.Key)
	s.started, s.clocked = time.Now(), true
	if stop = ended(ctx); stop == nil {
		stop = s.take(1, 0)
	}
	return stop
}

// elapsed is the time since the call, as far as the clock was running.
func (s *sequence) elapsed() time.Duration {
	if !s.clocked {
		s.started, s.clocked = time.Now(), true
		return 0
	}
	return time.Since(s.started)
}

// take asks the budget for attempt n.
func (s *sequence) take(n, cost int) error {
	if s.r.Budget == nil {
		return nil
	}
	if !s.r.Budget.Take(n, cost) {
		return ErrBudget
	}
	s.granted, s.spent = true, cost
	return nil
}

// give tells the budget how the granted attempt ended.
func (s *sequence) give(n int, res Result) {
	if s.granted {
		s.granted = false
		s.r.Budget.Give(n, s.spent, res)
	}
}

// run makes one attempt and notes how it ended.
func (s *sequence) run(op func(context.Context) error) error {
	err := s.call(op)
	s.ends(err)
	return err
}

// call makes one attempt. A panic of op passes through, after the budget has been told.
func (s *sequence) call(op func(context.Context) error) error {
	ctx := context.Context(s.mark)
	if s.r.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(s.mark, s.r.AttemptTimeout, ErrAttemptTimeout)
		defer cancel()
	}
	s.starts()
	returned := false
	defer func() {
		if !returned {
			s.give(s.tries, Failed)
		}
	}()
	err := op(ctx)
	returned = true
	return err
}

// starts notes that an attempt begins.
func (s *sequence) starts() {
	s.tries++
	s.row++
	if s.r.OnEvent != nil {
		s.r.OnEvent(Event{Kind: AttemptStarted, Attempt: s.mark.attempt(), Elapsed: s.elapsed()})
	}
}

// ends notes how the attempt ended; a success is the end of the sequence.
func (s *sequence) ends(err error) {
	if err != nil {
		s.give(s.tries, Failed)
		return
	}
	s.give(s.tries, Served)
	if s.r.OnEvent != nil {
		s.r.OnEvent(Event{Kind: Succeeded, Attempt: s.mark.attempt(), Elapsed: s.elapsed()})
	}
}

// failed decides about a failure and waits. nil: make the next attempt, with the context s.mark.
func (s *sequence) failed(ctx context.Context, err error) (stop error) {
	return s.next(ctx, err, step{Decision: s.r.classify(err, s.tries)})
}

// next decides, asks the budget, and waits.
func (s *sequence) next(ctx context.Context, err error, st step) (stop error) {
	if err != nil {
		s.failures.add(err)
	}
	r := s.r
	if r.MaxElapsed > 0 || r.MaxFailing > 0 {
		st.now = s.elapsed()
	}
	st.dead = ended(ctx)
	st.inside = s.mark.inside && !r.Nested
	wait, stop := s.decide(r, st)
	if stop == nil && wait > 0 {
		s.elapsed() // the clock runs from the first wait on
		if until, ok := ctx.Deadline(); ok && !time.Now().Add(wait).Before(until) {
			stop = ErrDeadline
		}
	}
	if stop == nil && !st.waited {
		stop = s.take(s.tries+1, st.Cost)
		if stop != nil && s.inPoll {
			// Who polls asks again at once when we return: without this wait an empty budget would speed it up.
			s.sleep(ctx, wait)
		}
	}
	if stop != nil {
		s.after = max(st.After, 0)
		return stop
	}
	if r.OnEvent != nil {
		kind := AttemptFailed
		if st.waited {
			kind = Waiting
		}
		r.OnEvent(Event{Kind: kind, Attempt: s.mark.attempt(), Action: st.Action, Wait: wait, Elapsed: s.elapsed(), Err: err})
	}
	if stop = s.sleep(ctx, wait); stop == nil && st.Action == Refresh {
		stop = s.refresh(ctx)
	}
	if stop != nil {
		s.give(s.tries+1, NotMade)
		return stop
	}
	if s.tries > 0 {
		s.mark = s.mark.following(s.target())
	}
	return nil
}

// refresh renews what was stale. Its failure is kept, and leaves the next attempt to fail again unless it is Permanent.
func (s *sequence) refresh(ctx context.Context) (stop error) {
	err := s.r.Refresh(s.mark)
	if err == nil {
		return ended(ctx)
	}
	s.failures.add(err)
	if n, noted := noteOf(err); noted && n.permanent {
		return ErrPermanent
	}
	return ended(ctx)
}

// target is the service that the next attempt should use.
func (s *sequence) target() int {
	if s.r.Targets <= 1 {
		return 0
	}
	return s.moves % s.r.Targets
}

// yieldEvery is how many attempts without a wait may follow each other before other goroutines get their turn.
const yieldEvery = 16

// sleep waits for d or the end of the context, which it checks in any case: a select has no order of preference.
func (s *sequence) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if s.spins++; s.spins%yieldEvery == 0 {
			runtime.Gosched()
		}
		return ended(ctx)
	}
	s.spins = 0
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	begun := time.Now()
	select {
	case <-s.timer.C:
		s.slept = later(s.slept, d)
	case <-ctx.Done():
		s.timer.Stop()
		s.slept = later(s.slept, time.Since(begun))
	}
	return ended(ctx)
}

// error makes the error of a sequence that stopped.
func (s *sequence) error(stop error) error {
	e := &Error{Stop: stop, Attempts: s.tries, Waited: s.slept, Errs: s.failures.list()}
	if len(e.Errs) > 0 {
		e.Last = e.Errs[len(e.Errs)-1]
	}
	if stop == ErrHint { //nolint:errorlint // our own sentinel, never wrapped here
		e.After = s.after
	}
	if s.clocked {
		e.Elapsed = time.Since(s.started)
	}
	if s.r.OnEvent != nil {
		s.r.OnEvent(Event{Kind: Stopped, Attempt: s.mark.attempt(), Elapsed: e.Elapsed, Err: e.Last, Stop: stop})
	}
	return e
}

// attempt is the public view of the mark.
func (m *mark) attempt() Attempt { return Attempt{Number: m.number, Target: m.target, Key: m.key} }
