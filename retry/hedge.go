package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// HedgeOptions are the settings of Hedge. The zero value starts two attempts at once. A negative
// Delay or MaxAttempts is refused with ErrOptions.
type HedgeOptions struct {
	// Delay is the time without a result after which another attempt starts. If Delay is the 95th
	// percentile of the latency, one call in twenty makes a second attempt. Zero starts all
	// attempts at once.
	Delay time.Duration
	// MaxAttempts limits the attempts, including the first. Zero means 2.
	MaxAttempts int
	// Budget limits the attempts. If it refuses an attempt, Hedge starts no further ones. Its
	// method Allow may wait. Nil means no such limit.
	Budget Budget
	// Classify decides how to handle a failure, as in Options. Fail and Refresh end the call. After
	// any other action, Hedge starts another attempt, unless it has made MaxAttempts.
	Classify func(err error) Action
	// Key is the idempotency key of the call, as in Options.
	Key string
	// Wait makes Hedge return only after all attempts have returned. Set it for operations that use
	// memory of the caller.
	Wait bool
	// KeepContext keeps the context of the winning attempt alive until ctx ends. Set it for values
	// that depend on that context, such as *sql.Rows. By default the context ends when Hedge
	// returns. KeepContext has no effect on an *http.Response or io.ReadCloser: the context then
	// ends when the body has been closed or read to its end.
	KeepContext bool
}

// Validate returns an error that wraps ErrOptions and names the invalid option. Hedge checks its
// options itself.
func (o HedgeOptions) Validate() error {
	if o.Delay < 0 || o.MaxAttempts < 0 {
		const text = "%w: Delay %v, MaxAttempts %d: want neither negative"
		return fmt.Errorf(text, ErrOptions, o.Delay, o.MaxAttempts)
	}
	return nil
}

// errHedged is the cause with which Hedge ends the context of an attempt whose result is not
// needed. It matches context.Canceled.
var errHedged error = hedgedError{}

type hedgedError struct{}

func (hedgedError) Error() string   { return "retry: another attempt succeeded" }
func (hedgedError) Is(t error) bool { return t == context.Canceled }

// PanicError is the value with which Hedge panics if an attempt panics on its own goroutine.
type PanicError struct {
	Value any    // the value of the attempt's panic
	Stack []byte // the stack of the attempt
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Hedge runs op and returns the first success. Whenever Delay has passed without a result, it
// starts another attempt while the earlier ones continue. After the first success, it ends the
// contexts of the other attempts. If an attempt fails, Hedge starts another one at once, or after
// the wait that the server asked for. If that wait is longer than 5 minutes, Hedge stops with
// ErrHint. The operation must tolerate running twice at the same time.
//
// If an attempt succeeds too late, Hedge calls discard to free its result. This call runs on the
// attempt's goroutine, and a panic of discard counts as a panic of the attempt. If discard is nil,
// an io.ReadCloser and the body of an *http.Response are closed, and other values are dropped.
//
// Each attempt has a goroutine of its own, which ends with the attempt. If an attempt panics, Hedge
// panics with a *PanicError. Without HedgeOptions.Wait, a panic after Hedge has stopped, or after
// another attempt has succeeded, is not recovered.
func Hedge[T any](
	ctx context.Context, op func(context.Context) (T, error), o HedgeOptions, discard func(T),
) (T, error) {
	var zero T
	if err := o.Validate(); err != nil {
		return zero, &Error{Stop: err}
	}
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 2)
	if discard == nil {
		discard = discardLate[T]
	}
	r := race[T]{
		options: o, op: op, discard: discard, ctx: ctx, begun: time.Now(),
		results: make(chan result[T]), returned: make(chan struct{}),
	}
	defer close(r.returned)
	r.attempt.Key = cmp.Or(o.Key, FromContext(ctx).Key)
	defer r.end() // also if run panics
	v, stop := r.run()
	// Once r.decided is set, attempts that succeed discard their results. If r.run has stopped
	// without a result, but r.decided was already set, an attempt has just succeeded. Its result
	// then counts.
	if !r.decided.CompareAndSwap(false, true) && stop != nil {
		v, stop = r.awaitWinner(), nil
	}
	r.end()
	if r.panicked != nil {
		if stop == nil {
			r.discardWinner(v)
		}
		panic(r.panicked)
	}
	if stop != nil {
		return zero, r.error(stop)
	}
	r.release(&v)
	return v, nil
}

// discardLate closes the body of v, if it has one.
func discardLate[T any](v T) {
	if body := bodyOf(&v); body != nil {
		discardBody(*body)
	}
}

// result is the outcome of an attempt.
type result[T any] struct {
	number   int
	value    T
	err      error
	action   Action        // how to handle err
	after    time.Duration // the hint of err
	refused  error         // error of the budget, if it refused the attempt
	late     bool          // it succeeded too late, so its value is discarded
	panicked *PanicError
}

// errGoexit is the failure of an attempt that ended its goroutine by runtime.Goexit, as the FailNow
// of a test does.
var errGoexit = errors.New("the operation ended its goroutine")

// race is one call of Hedge. Only the goroutine of Hedge changes its fields, except decided.
type race[T any] struct {
	options  HedgeOptions
	op       func(context.Context) (T, error)
	discard  func(T)
	ctx      context.Context // the caller's
	attempt  Attempt         // the newest one
	begun    time.Time
	cancels  []context.CancelCauseFunc // cancel functions of the attempts
	running  int
	refusals int
	refused  error // error of the budget; if set, no further attempt starts
	winner   int   // the number of the attempt that succeeded first
	failures failures
	hint     time.Duration
	panicked *PanicError    // panic of an attempt that ended after another one had succeeded
	results  chan result[T] // until returned is closed, each attempt sends its result
	returned chan struct{}  // closed when Hedge returns
	decided  atomic.Bool    // an attempt has succeeded, or Hedge has stopped without a success
}

// run starts attempts and waits for the first success.
func (r *race[T]) run() (v T, stop error) {
	if stop = ended(r.ctx); stop != nil {
		return v, stop
	}
	r.start()
	for r.options.Delay == 0 && r.mayStart() {
		r.start()
	}
	timer := time.NewTimer(r.options.Delay)
	defer timer.Stop()
	for r.running > 0 || r.mayStart() {
		due := timer.C
		if !r.mayStart() {
			due = nil
		}
		select {
		case a := <-r.results:
			r.running--
			switch {
			case a.panicked != nil:
				if !r.decided.CompareAndSwap(false, true) {
					r.discardWinner(r.awaitWinner())
				}
				panic(a.panicked)
			case a.refused != nil:
				r.refusals++
				if stop = ended(r.ctx); stop != nil {
					return v, stop
				}
				r.refused = a.refused
				continue
			case a.err == nil:
				r.winner = a.number
				return a.value, nil
			case r.decided.Load():
				continue // the winner's result follows
			}
			wait, stop := r.failed(&a)
			if stop == nil {
				stop = ended(r.ctx)
			}
			if stop != nil {
				return v, stop
			}
			timer.Reset(wait)
		case <-due:
			if r.decided.Load() {
				continue // the winner's result follows
			}
			r.start()
			timer.Reset(r.options.Delay)
		case <-r.ctx.Done():
			return v, ended(r.ctx)
		}
	}
	if r.refused != nil {
		return v, fmt.Errorf("%w: %w", ErrBudget, r.refused)
	}
	return v, ErrExhausted
}

// awaitWinner waits for the result of the attempt that has succeeded.
func (r *race[T]) awaitWinner() T {
	for {
		a := r.nextResult()
		if a.err == nil && a.refused == nil && a.panicked == nil {
			r.winner = a.number
			return a.value
		}
	}
}

// nextResult waits for the result of an attempt, and records a panic.
func (r *race[T]) nextResult() result[T] {
	a := <-r.results
	r.running--
	if a.panicked != nil {
		r.panicked = a.panicked
	}
	return a
}

// discardWinner discards v, the value of the winner, because Hedge panics.
func (r *race[T]) discardWinner(v T) {
	r.winner = 0
	r.cancelLosers() // its context ends, too, so that discard does not wait for a slow body
	r.discard(v)
}

// end ends the contexts of all attempts but the winner, the attempt that succeeded first. With
// HedgeOptions.Wait, it waits until they have returned.
func (r *race[T]) end() {
	r.cancelLosers()
	for r.options.Wait && r.running > 0 {
		r.nextResult()
	}
}

// cancelLosers ends the contexts of all attempts but the winner.
func (r *race[T]) cancelLosers() {
	for i, cancel := range r.cancels {
		if i+1 != r.winner {
			cancel(errHedged)
		}
	}
}

// release ends the context of the winner when its value does not need it any more.
func (r *race[T]) release(v *T) {
	cancel := r.cancels[r.winner-1]
	if body := bodyOf(v); body != nil {
		*body = cancelOnClose(*body, func() { cancel(nil) })
		return
	}
	if !r.options.KeepContext {
		cancel(nil)
	}
}

// failed returns the wait before the attempt that replaces a failed one, or the reason to stop.
func (r *race[T]) failed(a *result[T]) (wait time.Duration, stop error) {
	r.failures.add(a.err)
	switch {
	case a.action == Fail:
		return 0, ErrPermanent
	case a.after > defaultMaxHint:
		r.hint = a.after
		return 0, ErrHint
	}
	return max(a.after, 0), nil
}

// mayStart reports whether another attempt may start.
func (r *race[T]) mayStart() bool {
	return r.refused == nil && r.attempt.Number < r.options.MaxAttempts
}

// start starts another attempt.
func (r *race[T]) start() {
	r.attempt.Number++
	r.running++
	ctx, cancel := context.WithCancelCause(r.ctx)
	r.cancels = append(r.cancels, cancel)
	go r.runAttempt(&attemptContext{Context: ctx, attempt: r.attempt})
}

// runAttempt is the goroutine of an attempt. It sends exactly one result, unless Hedge has returned
// before it can send. A success counts only if it is the first one and Hedge has not stopped.
func (r *race[T]) runAttempt(ctx *attemptContext) {
	a := result[T]{number: ctx.attempt.Number, err: errGoexit}
	defer func() {
		if p := recover(); p != nil {
			if r.decided.Load() && !r.options.Wait {
				panic(p) // Hedge has returned
			}
			a.panicked = &PanicError{Value: p, Stack: debug.Stack()}
		}
		if a.refused == nil {
			r.report(ctx, r.outcome(&a))
		}
		select {
		case r.results <- a:
		case <-r.returned: // its result is not needed
		}
	}()
	if r.options.Budget != nil {
		if a.refused = r.options.Budget.Allow(ctx); a.refused != nil {
			return
		}
	}
	a.value, a.err = r.op(ctx)
	if a.err != nil && !r.decided.Load() {
		a.action, a.after = (&Options{Classify: r.options.Classify}).classify(a.err)
	}
	if a.err == nil && !r.decided.CompareAndSwap(false, true) {
		a.err, a.late = errHedged, true
		r.discard(a.value) // if it panics, the attempt is still reported and sends its result
	}
}

// outcome returns the error to be reported to the budget.
func (r *race[T]) outcome(a *result[T]) error {
	switch {
	case a.late:
		return nil // the operation has succeeded, even if discard has panicked
	case a.panicked != nil:
		return errPanicked
	case a.err == nil:
		return nil
	case r.decided.Load():
		return errHedged // the attempt probably failed because its context has ended
	}
	if a.action == Fail {
		return Permanent(a.err)
	}
	return a.err
}

// report reports to the budget, if there is one, the outcome of an attempt that the budget allowed.
func (r *race[T]) report(ctx context.Context, outcome error) {
	if r.options.Budget != nil {
		r.options.Budget.Report(ctx, outcome)
	}
}

// error returns the error of a call that stopped.
func (r *race[T]) error(stop error) error {
	e := &Error{
		Stop: stop, Attempts: r.attempt.Number - r.refusals, Elapsed: time.Since(r.begun),
		After: r.hint, Errs: r.failures.list(),
	}
	if len(e.Errs) > 0 {
		e.Last = e.Errs[len(e.Errs)-1]
	}
	return e
}
