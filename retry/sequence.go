package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"
)

// sequence carries out one retry: it asks the plan, the budget and the clock, and waits. One goroutine uses it. The
// settings are passed beside it: in a field they would have to live on the heap.
type sequence struct {
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
func (s *sequence) begin(ctx context.Context, r *Retrier) (stop error) {
	s.mark = begins(ctx, r.Key)
	s.started, s.clocked = time.Now(), true
	if stop = ended(ctx); stop == nil {
		stop = s.take(r, 1, 0)
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
func (s *sequence) take(r *Retrier, n, cost int) error {
	if r.Budget == nil {
		return nil
	}
	if !r.Budget.Take(n, cost) {
		return ErrBudget
	}
	s.granted, s.spent = true, cost
	return nil
}

// give tells the budget how the granted attempt ended.
func (s *sequence) give(r *Retrier, n int, res Result) {
	if s.granted {
		s.granted = false
		r.Budget.Give(n, s.spent, res)
	}
}

// run makes one attempt and notes how it ended.
func (s *sequence) run(r *Retrier, op func(context.Context) error) error {
	err := s.call(r, op)
	s.ends(r, err)
	return err
}

// call makes one attempt. A panic of op passes through, after the budget has been told.
func (s *sequence) call(r *Retrier, op func(context.Context) error) error {
	ctx := context.Context(s.mark)
	if r.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(s.mark, r.AttemptTimeout, ErrAttemptTimeout)
		defer cancel()
	}
	s.starts(r)
	returned := false
	defer func() {
		if !returned {
			s.give(r, s.tries, Failed)
		}
	}()
	err := op(ctx)
	returned = true
	return err
}

// starts notes that an attempt begins.
func (s *sequence) starts(r *Retrier) {
	s.tries++
	s.row++
	if r.OnEvent != nil {
		r.OnEvent(Event{Kind: AttemptStarted, Attempt: s.mark.attempt(), Elapsed: s.elapsed()})
	}
}

// ends notes how the attempt ended; a success is the end of the sequence.
func (s *sequence) ends(r *Retrier, err error) {
	if err != nil {
		s.give(r, s.tries, Failed)
		return
	}
	s.give(r, s.tries, Served)
	if r.OnEvent != nil {
		r.OnEvent(Event{Kind: Succeeded, Attempt: s.mark.attempt(), Elapsed: s.elapsed()})
	}
}

// failed decides about a failure and waits. nil: make the next attempt, with the context s.mark.
func (s *sequence) failed(ctx context.Context, r *Retrier, err error) (stop error) {
	return s.next(ctx, r, err, step{Decision: r.classify(err, s.tries)})
}

// next decides, asks the budget, and waits.
func (s *sequence) next(ctx context.Context, r *Retrier, err error, st step) (stop error) {
	if err != nil {
		s.failures.add(err)
	}
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
		stop = s.take(r, s.tries+1, st.Cost)
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
		stop = s.refresh(ctx, r)
	}
	if stop != nil {
		s.give(r, s.tries+1, NotMade)
		return stop
	}
	if s.tries > 0 {
		s.mark = s.mark.following(s.target(r))
	}
	return nil
}

// refresh renews what was stale. Its failure is kept, and leaves the next attempt to fail again unless it is Permanent.
func (s *sequence) refresh(ctx context.Context, r *Retrier) (stop error) {
	err := r.Refresh(s.mark)
	if err == nil {
		return ended(ctx)
	}
	s.failures.add(err)
	if permanent, _ := inspect(err); permanent {
		return ErrPermanent
	}
	return ended(ctx)
}

// target is the service that the next attempt should use.
func (s *sequence) target(r *Retrier) int {
	if r.Targets <= 1 {
		return 0
	}
	return s.moves % r.Targets
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
func (s *sequence) error(r *Retrier, stop error) error {
	e := &Error{Stop: stop, Attempts: s.tries, Waited: s.slept, Errs: s.failures.list()}
	if len(e.Errs) > 0 {
		e.Last = e.Errs[len(e.Errs)-1]
	}
	if errors.Is(stop, ErrHint) {
		e.After = s.after
	}
	if s.clocked {
		e.Elapsed = time.Since(s.started)
	}
	if r.OnEvent != nil {
		r.OnEvent(Event{Kind: Stopped, Attempt: s.mark.attempt(), Elapsed: e.Elapsed, Err: e.Last, Stop: stop})
	}
	return e
}

// attempt is the public view of the mark.
func (m *mark) attempt() Attempt { return Attempt{Number: m.number, Target: m.target, Key: m.key} }
