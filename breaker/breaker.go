// Package breaker stops calling a server that fails, and tries again later with a single call.
//
//	b, err := breaker.New(breaker.Options{})
//	...
//	err = b.Do(ctx, func(ctx context.Context) error { return call(ctx) })
//
// By default, a breaker opens after five failures in a row, or when half of at least 20 calls
// within ten seconds have failed. While it is open, Do returns an [*OpenError] at once. After a
// wait, one call goes through as a probe. If the probe succeeds, the breaker closes. If the probe
// fails, the breaker opens again, usually for a longer wait. [State] lists the transitions.
// [Options] sets the thresholds and the waits.
//
// Use [Breaker.Allow] instead of Do if the call cannot be wrapped in a function. Use
// [Breaker.Budget] with package retry, which then asks the breaker before each attempt. Package
// breakerhttp has an http.RoundTripper. [Circuit] is the state machine without a clock and without
// locks.
//
// The package starts no goroutine and runs under testing/synctest. A successful call allocates
// nothing, unless it changes the state and OnChange is set.
package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"
)

// OpenError is returned for a call that was not made because the breaker is open or waits for a
// running probe.
type OpenError struct {
	Wait time.Duration // time until the next probe; zero if a probe is running now
}

// Error returns the state and the time until the next probe.
func (e *OpenError) Error() string {
	if e.Wait == 0 {
		return "circuit breaker is half-open: a probe is under way"
	}
	return fmt.Sprintf("circuit breaker is open: next probe in %v", e.Wait.Round(time.Millisecond))
}

// RetryAfter returns Wait, the hint that package retry follows.
func (e *OpenError) RetryAfter() time.Duration { return e.Wait }

// Refused returns true: the breaker did not make the call. So another breaker or limiter around the
// call ignores the error.
func (e *OpenError) Refused() bool { return true }

// LogValue implements slog.LogValuer. It returns a group of msg, state and wait. An unknown wait is
// left out.
func (e *OpenError) LogValue() slog.Value {
	state := Open
	if e.Wait == 0 {
		state = HalfOpen
	}
	attrs := []slog.Attr{slog.String("msg", e.Error()), slog.String("state", state.String())}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return slog.GroupValue(attrs...)
}

// Change is a change of state.
type Change struct {
	From, To State
	At       time.Time
	Wait     time.Duration // time until the next probe, if To is Open
	// Err is the error of the call that caused the change of state. It is nil if the call
	// succeeded, if the change came before a call (from Open to HalfOpen), or if a probe timed out.
	Err error
}

// Breaker protects the calls to one server. It is safe for concurrent use. Make one with [New]:
// the methods of a zero Breaker panic.
type Breaker struct {
	origin   time.Time
	outcome  func(error) Outcome
	onChange func(Change)
	maxHint  time.Duration

	mu        sync.Mutex
	circuit   *Circuit // guarded by mu, as all that follows; the pointer does not change
	changes   []Change // not yet reported
	reporting bool     // a goroutine is calling onChange
}

// New returns a closed Breaker for one server. Use one Breaker for each server.
func New(o Options) (*Breaker, error) {
	circuit, err := NewCircuit(o, nil)
	if err != nil {
		return nil, err
	}
	b := &Breaker{origin: time.Now(), outcome: o.Outcome, onChange: o.OnChange, circuit: circuit,
		maxHint: cmp.Or(o.MaxHint, defaultMaxHint)}
	if b.outcome == nil {
		b.outcome = OutcomeOf
	}
	return b, nil
}

// OutcomeOf returns the outcome of a call that returned err. It is the default of Options.Outcome.
// The outcome is
//
//   - Success if err is nil
//   - Ignored if err wraps context.Canceled
//   - Ignored if a breaker or limiter inside the call refused it: err wraps an error with a
//     method Refused() bool that returns true
//   - Ignored if err is permanent, such as a 404: err wraps an error with a method
//     Permanent() bool that returns true
//   - Failure otherwise.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Success
	case errors.Is(err, context.Canceled):
		return Ignored
	}
	if e, ok := errors.AsType[refusal](err); ok && e.Refused() {
		return Ignored
	}
	if e, ok := errors.AsType[permanent](err); ok && e.Permanent() {
		return Ignored
	}
	return Failure
}

type refusal interface {
	error
	Refused() bool
}

type permanent interface {
	error
	Permanent() bool
}

// Do calls f, or returns an [*OpenError] if the breaker refuses the call. If f panics, the breaker
// counts a failure, and the panic continues. If ctx has been canceled, any error of f counts as
// context.Canceled, which is not a failure of the server.
func (b *Breaker) Do(ctx context.Context, f func(context.Context) error) error {
	call, err := b.Allow()
	if err != nil {
		return err
	}
	err = errPanic
	defer func() { call.Done(canceled(ctx, err)) }()
	err = f(ctx)
	return err
}

// canceled returns err, marked as context.Canceled if ctx has been canceled. Without the mark, an
// error that wraps only the cause of the cancellation would count as a failure.
func canceled(ctx context.Context, err error) error {
	if err == nil || err == errPanic || !errors.Is(ctx.Err(), context.Canceled) ||
		errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", context.Canceled, err)
}

var errPanic = errors.New("the call panicked")

// Call is one call that the breaker let through.
type Call struct {
	breaker *Breaker
	ticket  Ticket
}

// Allow lets one call through, or returns an [*OpenError]. The caller must call Done of the
// returned Call once after the call.
func (b *Breaker) Allow() (Call, error) {
	call, report, err := b.allow(time.Since(b.origin))
	if !report {
		return call, err
	}
	panics := err == nil
	defer func() {
		if panics { // the caller does not get the call, so it cannot end it
			b.done(call.ticket, Ignored, 0, nil)
		}
	}()
	b.report()
	panics = false
	return call, err
}

// allow is Allow without the calls of onChange. The result report is that of changed.
func (b *Breaker) allow(now time.Duration) (_ Call, report bool, err error) {
	b.lock()
	defer b.mu.Unlock() // also if Options.Wait panics
	for {
		before := b.circuit.State()
		t, ok := b.circuit.Allow(now)
		report = b.changed(before, now, nil) || report
		if ok {
			return Call{b, t}, report, nil
		}
		wait := b.circuit.Wait(now)
		if wait > 0 || b.circuit.State() != Open {
			return Call{}, report, &OpenError{wait}
		}
		// A probe has timed out, and its wait of 0 is over: this call is the next probe.
	}
}

// Done ends the call with its error, nil for success. If err opens the breaker and has a method
// RetryAfter() time.Duration, the breaker stays open for at least that duration, up to
// Options.MaxHint.
func (c Call) Done(err error) {
	b := c.breaker
	if b == nil {
		return
	}
	outcome := b.outcome(err)
	least := time.Duration(0)
	if outcome == Failure {
		if hint, ok := errors.AsType[interface {
			error
			RetryAfter() time.Duration
		}](err); ok {
			least = min(hint.RetryAfter(), b.maxHint)
		}
	}
	if b.done(c.ticket, outcome, least, err) {
		b.report()
	}
}

// done is Call.Done without the calls of onChange. Its result is that of changed.
func (b *Breaker) done(t Ticket, outcome Outcome, least time.Duration, err error) bool {
	now := time.Since(b.origin)
	b.mu.Lock()
	defer b.mu.Unlock() // also if Options.Wait panics
	before := b.circuit.State()
	b.circuit.Done(now, t, outcome, least)
	return b.changed(before, now, err)
}

// changed compares the state with an earlier one (before). If the two differ and OnChange is set,
// changed adds the change to b.changes. It reports whether the caller must call report, which
// passes the changes to onChange.
func (b *Breaker) changed(before State, now time.Duration, err error) bool {
	after := b.circuit.State()
	if after == before || b.onChange == nil {
		return false
	}
	b.changes = append(b.changes,
		Change{before, after, b.origin.Add(now), b.circuit.Wait(now), err})
	return !b.reporting
}

// report calls onChange for all recorded changes, unless another goroutine is doing so.
func (b *Breaker) report() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reporting {
		return
	}
	b.reporting = true
	defer func() { b.reporting = false }()
	for len(b.changes) > 0 {
		c := b.changes[0]
		b.changes = b.changes[1:]
		b.call(c)
	}
}

// call calls onChange without the lock.
func (b *Breaker) call(c Change) {
	b.mu.Unlock()
	defer b.mu.Lock()
	b.onChange(c)
}

// lock locks mu, or panics if b is a zero Breaker.
func (b *Breaker) lock() {
	if b.circuit == nil {
		panic("breaker: zero Breaker; make one with breaker.New")
	}
	b.mu.Lock()
}

// State returns the state.
func (b *Breaker) State() State {
	b.lock()
	defer b.mu.Unlock()
	return b.circuit.State()
}

// Budget returns a budget for package retry that asks b before each attempt. If the breaker refuses
// an attempt, the retry stops with an error that wraps an [*OpenError].
func (b *Breaker) Budget() *Budget {
	return &Budget{breaker: b, calls: make(map[any]running)}
}

// Budget implements retry.Budget with a breaker. It is safe for concurrent use. Make one with
// [Breaker.Budget]: Allow of a zero Budget panics.
type Budget struct {
	breaker *Breaker
	mu      sync.Mutex
	calls   map[any]running // by context (keyOf); guarded by mu
}

// keyOf returns the key of ctx in Budget.calls: ctx itself, or nil for all contexts that cannot be
// keys of a map, such as a struct with a map in it.
func keyOf(ctx context.Context) any {
	if v := reflect.ValueOf(ctx); v.Kind() == reflect.Pointer || v.Comparable() {
		return ctx
	}
	return nil
}

// running holds the running attempts with one context. There may be several of them, because
// concurrent calls of retry.Do may pass the same context to Allow.
type running struct {
	oldest Call
	newer  []Call // the other attempts, in order of start
}

// Allow lets an attempt through, or returns an [*OpenError].
func (b *Budget) Allow(ctx context.Context) error {
	if b.breaker == nil {
		panic("breaker: zero Budget; make one with Breaker.Budget")
	}
	call, err := b.breaker.Allow()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := keyOf(ctx)
	r, shared := b.calls[key]
	if shared {
		r.newer = append(r.newer, call)
	} else {
		r.oldest = call
	}
	b.calls[key] = r
	return nil
}

// Report passes the result of an attempt to the breaker: its error, or nil for success. ctx is the
// context that Allow got. If several attempts with this context are running, the result counts for
// the oldest of them.
func (b *Budget) Report(ctx context.Context, err error) {
	b.end(ctx).Done(canceled(ctx, err))
}

// end removes the oldest running attempt with ctx from calls, and returns it. It returns the zero
// Call if there is none.
func (b *Budget) end(ctx context.Context) Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := keyOf(ctx)
	r := b.calls[key]
	call := r.oldest
	if len(r.newer) == 0 {
		delete(b.calls, key)
		return call
	}
	b.calls[key] = running{r.newer[0], r.newer[1:]}
	return call
}
