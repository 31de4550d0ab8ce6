package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// sequence runs the attempts of one call. Between two attempts it asks the plan for the wait,
// waits, and asks the budget for permission. Only one goroutine uses it. Its methods get the
// options as an argument, because a field would move the options to the heap.
type sequence struct {
	ctx        context.Context // context of attempt
	attempt    Attempt         // the running one, or else the next one
	suppressor *suppressor     // suppressor of the running attempt
	outer      *suppressor     // suppressor of the attempt in which the call is made
	plan
	attempts int  // made so far
	spins    int  // attempts in a row without a wait
	granted  bool // the budget allowed the running attempt and awaits the outcome
	clocked  bool
	started  time.Time
	waited   time.Duration
	hint     time.Duration // hint of the last failure
	timer    *time.Timer
	failures failures
}

// source returns the source of randomness for draws outside the policy.
func (o *Options) source() rand.Source {
	if o.Rand == nil {
		return runtimeSource{}
	}
	return o.Rand
}

// runtimeSource is the runtime's generator, which is safe for concurrent use.
type runtimeSource struct{}

// Uint64 implements rand.Source.
func (runtimeSource) Uint64() uint64 { return rand.Uint64() }

// begin prepares the first attempt and asks the budget for it. The result is nil, or the reason why
// the attempt must not run.
func (s *sequence) begin(ctx context.Context, o *Options) (stop error) {
	s.prepare(ctx, o)
	return s.admit(ctx, o)
}

// prepare sets the context of the first attempt.
func (s *sequence) prepare(ctx context.Context, o *Options) {
	s.attempt = Attempt{Number: 1, Key: o.Key}
	outer, nested := ctx.Value(attemptKey{}).(*attemptContext)
	if nested {
		s.outer, _ = ctx.Value(suppressorKey{}).(*suppressor)
		if o.Key == "" {
			s.attempt.Key = outer.attempt.Key
		}
	}
	if !o.plain() {
		s.started, s.clocked = time.Now(), true
	}
	s.ctx = ctx
	if nested || s.attempt.Key != "" || o.SuppressNested {
		s.enter(ctx, o)
	}
}

// enter sets the context of the next attempt.
func (s *sequence) enter(ctx context.Context, o *Options) {
	s.ctx = &attemptContext{Context: ctx, attempt: s.attempt}
	if o.SuppressNested && !s.outer.active() {
		s.suppressor = new(suppressor)
		s.ctx = context.WithValue(s.ctx, suppressorKey{}, s.suppressor)
	}
}

// elapsed returns the time since the start of the call. If no setting needs the clock at the start,
// it counts from the first call of elapsed instead.
func (s *sequence) elapsed() time.Duration {
	if !s.clocked {
		s.started, s.clocked = time.Now(), true
		return 0
	}
	return time.Since(s.started)
}

// admit asks the budget, if there is one, to allow the next attempt. It returns nil, or the reason
// why the call must stop.
func (s *sequence) admit(ctx context.Context, o *Options) (stop error) {
	if stop = s.overdue(ctx, o); stop != nil || o.Budget == nil {
		return stop
	}
	if err := o.Budget.Allow(s.ctx); err != nil {
		if stop = ended(ctx); stop != nil {
			return stop
		}
		return fmt.Errorf("%w: %w", ErrBudget, err)
	}
	s.granted = true
	if stop = s.overdue(ctx, o); stop != nil { // Allow may have waited
		s.report(o, context.Canceled)
	}
	return stop
}

// overdue returns the reason why the next attempt must not start now, or nil. The wait before it
// was within the limits of time, but other steps may have taken longer, such as Options.Refresh.
func (s *sequence) overdue(ctx context.Context, o *Options) error {
	if err := ended(ctx); err != nil || s.attempts == 0 || o.MaxElapsed <= 0 && o.MaxFailing <= 0 {
		return err
	}
	now := s.elapsed()
	if o.MaxElapsed > 0 && now > o.MaxElapsed ||
		o.MaxFailing > 0 && s.failing && now-s.failedAt > o.MaxFailing {
		return ErrElapsed
	}
	return nil
}

// report reports to the budget the outcome of the attempt that it allowed.
func (s *sequence) report(o *Options, err error) {
	if s.granted {
		s.granted = false
		o.Budget.Report(s.ctx, err)
	}
}

// errPanicked is the outcome of an attempt that ended with a panic.
var errPanicked = Permanent(
	errors.New("retry: the operation or a function of the options panicked"))

// end runs when the call returns or panics (defer). If an allowed attempt has not been reported to
// the budget by then, the operation or a function of the options has panicked.
func (s *sequence) end(o *Options) {
	s.leave()
	s.report(o, errPanicked)
}

// run makes one attempt.
func (s *sequence) run(o *Options, op func(context.Context) error) error {
	ctx := s.ctx
	if o.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.AttemptTimeout, ErrAttemptTimeout)
		defer cancel()
	}
	s.start(o)
	err := op(ctx)
	s.finish(o, err)
	return err
}

// start notes that an attempt begins.
func (s *sequence) start(o *Options) {
	s.attempts++
	s.row++
	if o.OnEvent != nil {
		o.OnEvent(s.ctx, Event{Kind: AttemptStarted, Attempt: s.attempt, Elapsed: s.elapsed()})
	}
}

// finish notes that an attempt ended. A failure is reported to the budget later, when it is
// classified.
func (s *sequence) finish(o *Options, err error) {
	s.leave()
	if err != nil {
		return
	}
	s.report(o, nil)
	if o.OnEvent != nil {
		o.OnEvent(s.ctx, Event{Kind: Succeeded, Attempt: s.attempt, Elapsed: s.elapsed()})
	}
}

// leave ends the suppression of nested retries by the attempt.
func (s *sequence) leave() {
	if s.suppressor != nil {
		s.suppressor.over.Store(true)
	}
}

// failed classifies a failure and waits. Nil means that the next attempt can run, with the context
// s.ctx.
func (s *sequence) failed(ctx context.Context, o *Options, err error) (stop error) {
	action, after := o.classify(err)
	return s.next(ctx, o, &step{err: err, action: action, after: after})
}

// next decides whether another attempt follows. If so, it waits and prepares that attempt.
// Otherwise it returns the reason to stop.
func (s *sequence) next(ctx context.Context, o *Options, st *step) (stop error) {
	if st.err != nil {
		s.failures.add(st.err)
	}
	switch {
	case st.notReady:
		s.report(o, nil)
	case st.action == Fail:
		s.report(o, Permanent(st.err))
	default:
		s.report(o, st.err)
	}
	if o.MaxElapsed > 0 || o.MaxFailing > 0 {
		st.now = s.elapsed()
	}
	st.contextErr = ended(ctx)
	st.suppressed = s.outer.active()
	wait, stop := s.decide(o, st)
	s.hint = max(st.after, 0)
	if stop == nil && wait > 0 {
		s.elapsed() // starts the clock
		if until, ok := ctx.Deadline(); ok && !time.Now().Add(wait).Before(until) {
			stop = errDeadline
		}
	}
	if stop != nil {
		return stop
	}
	if o.OnEvent != nil {
		kind := AttemptFailed
		if st.notReady {
			kind = Waiting
		}
		o.OnEvent(s.ctx, Event{
			Kind: kind, Attempt: s.attempt, Action: st.action, Wait: wait, Elapsed: s.elapsed(),
			Err: st.err,
		})
	}
	if o.beforeWait != nil {
		o.beforeWait()
	}
	if wait > 0 {
		stop = s.sleep(ctx, wait)
	} else {
		s.yield()
	}
	if stop == nil && st.action == Refresh {
		stop = s.refresh(ctx, o)
	}
	if stop != nil {
		return stop
	}
	if s.attempts > 0 {
		s.attempt.Number++
		s.attempt.Target = s.target(o)
		s.attempt.Err = st.err
		s.enter(ctx, o)
	}
	if st.notReady && s.attempts > 0 {
		return s.overdue(ctx, o) // polling unfinished work again is no retry
	}
	return s.admit(ctx, o)
}

// refresh calls Options.Refresh. If that fails, the next attempt still runs, unless the failure is
// Permanent.
func (s *sequence) refresh(ctx context.Context, o *Options) (stop error) {
	err := o.Refresh(s.ctx)
	if err == nil {
		return nil
	}
	s.failures.add(err)
	if inspect(err).permanent {
		return ErrPermanent
	}
	return ended(ctx)
}

// target returns the service that the next attempt should use.
func (s *sequence) target(o *Options) int {
	if o.Targets <= 1 {
		return 0
	}
	return s.failovers % o.Targets
}

// yieldEvery is the number of attempts in a row without a wait after which other goroutines may
// run.
const yieldEvery = 16

// yield is called instead of sleep for a wait of 0. It lets other goroutines run in every
// yieldEvery-th call. It does not check the context, since next checks it afterwards.
func (s *sequence) yield() {
	if s.spins++; s.spins%yieldEvery == 0 {
		runtime.Gosched()
	}
}

// sleep waits for d, which is more than 0, or until ctx ends. It checks ctx after the select, which
// chooses at random if the timer has expired and ctx has ended.
func (s *sequence) sleep(ctx context.Context, d time.Duration) error {
	s.spins = 0
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	begun := time.Now()
	select {
	case <-s.timer.C:
		s.waited = addSaturating(s.waited, d)
	case <-ctx.Done():
		s.timer.Stop()
		s.waited = addSaturating(s.waited, time.Since(begun))
	}
	return ended(ctx)
}

// error returns the error of a call that stopped.
func (s *sequence) error(o *Options, stop error) error {
	e := &Error{Stop: stop, Attempts: s.attempts, Waited: s.waited, Errs: s.failures.list()}
	if len(e.Errs) > 0 {
		e.Last = e.Errs[len(e.Errs)-1]
	}
	if errors.Is(stop, ErrHint) {
		e.After = s.hint
	}
	if s.clocked {
		e.Elapsed = time.Since(s.started)
	}
	if o.OnEvent != nil {
		last := s.attempt
		last.Number = s.attempts
		o.OnEvent(s.ctx, Event{Kind: Stopped, Attempt: last, Elapsed: e.Elapsed, Err: e.Last,
			Stop: stop})
	}
	return e
}
