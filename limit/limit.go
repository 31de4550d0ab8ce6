// Package limit bounds how many calls run at once, and finds the right bound by itself.
//
//	limiter, err := limit.New(limit.Options{})
//	...
//	permit, err := limiter.Acquire(ctx)
//	if err != nil {
//		return err // refused, or ctx ended while waiting
//	}
//	reply, err := call(ctx)
//	permit.Done(limit.OutcomeOf(err))
//
// The limiter measures the round trips of calls. The limit grows while the server keeps up, and
// shrinks when calls queue at the server. So you need not know the capacity of the server or the
// network. Calls beyond the limit wait in the limiter, in a bounded queue in order of priority. A
// caller that would have to wait too long for its deadline is refused at once. [Fixed] returns a
// limiter with a constant limit (a bulkhead).
//
// Package limithttp has an http.RoundTripper for clients and an http.Handler for servers. The
// algorithms are those of package flow/window. docs/flow-control.md compares them.
//
// The package starts no goroutine and runs under testing/synctest. Acquire, TryAcquire and Done
// allocate nothing, unless the limit is reached or more calls run than ever before.
package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// Options configures a Limiter. The zero value works.
type Options struct {
	// Window chooses the algorithm that sets the limit. Nil means window.Queue{Short: true}. It
	// keeps the queue at the server short by probes that drain the queue now and then, and needs
	// thousands of calls per minute. Plain window.Queue{} allows a longer queue. Use window.AIMD{}
	// for a server shared with clients that do not limit themselves. New refuses window.Credit,
	// because it needs a server that advertises its window.
	Window window.Algorithm

	// MaxWaiting bounds the number of callers that wait for a permit. Zero means 1000. If it is
	// negative, no caller waits, and callers beyond the limit are refused.
	MaxWaiting int

	// MaxWait bounds the time that a caller waits for a permit. If the expected wait is longer, the
	// caller is refused at once. Any other caller is refused when it has waited for MaxWait. Zero
	// means that only MaxWaiting and the caller's context bound the wait.
	MaxWait time.Duration
}

const defaultWaiting = 1000

// Validate returns an error that names the invalid option.
func (o Options) Validate() error {
	if o.MaxWait < 0 {
		return fmt.Errorf("limit: MaxWait is %v, want 0 or more", o.MaxWait)
	}
	switch o.Window.(type) {
	case nil:
		return nil
	case window.Credit:
		return errors.New("limit: window.Credit needs a server that advertises its window, want " +
			"another window")
	}
	if err := o.Window.Validate(); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Window == nil {
		o.Window = window.Queue{Short: true}
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = defaultWaiting
	}
	return o
}

// Limiter bounds the calls in flight to one server. It is safe for concurrent use. Make one with
// [New] or [Fixed]: the methods of a zero Limiter panic.
type Limiter struct {
	origin    time.Time
	mu        sync.Mutex
	admission *admission // guarded by mu; the pointer does not change
}

// New returns a Limiter for one server. Use one Limiter for each server: a limit shared by several
// servers adapts to the slowest of them.
func New(o Options) (*Limiter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	origin := time.Now().Add(-1) // so that no time is zero, which means none
	return &Limiter{origin: origin,
		admission: newAdmission(o.withDefaults(), time.Duration(origin.UnixNano()))}, nil
}

// Fixed returns a Limiter with a constant limit of n calls and the defaults of Options: a bulkhead.
// Values of n below 1 count as 1, above 100,000 as 100,000.
func Fixed(n int) *Limiter {
	l, err := New(Options{Window: window.Fixed{Size: min(max(n, 1), 100_000)}})
	if err != nil {
		panic(err) // the options are valid
	}
	return l
}

// Permit is the right to make one call. The caller must call Done when the call has ended.
type Permit struct {
	limiter *Limiter
	handle  handle
}

// Done ends the call. A second Done does nothing.
func (p Permit) Done(o Outcome) {
	if p.limiter == nil {
		return
	}
	l := p.limiter
	l.mu.Lock()
	l.admission.finish(l.now(), p.handle, o)
	l.mu.Unlock()
}

func (l *Limiter) now() time.Duration { return time.Since(l.origin) }

// lock locks mu, or panics if l is a zero Limiter.
func (l *Limiter) lock() {
	if l.admission == nil {
		panic("limit: zero Limiter; make one with limit.New or limit.Fixed")
	}
	l.mu.Lock()
}

// TryAcquire returns a permit, or false if all permits are taken.
func (l *Limiter) TryAcquire() (Permit, bool) {
	l.lock()
	defer l.mu.Unlock()
	if !l.admission.hasRoom() {
		return Permit{}, false
	}
	return Permit{l, l.admission.start(l.now())}, true
}

// Acquire returns a permit. It waits if all permits are taken. The error is a *[RefusedError], or
// the cause with which ctx ended.
func (l *Limiter) Acquire(ctx context.Context) (Permit, error) {
	return l.AcquirePriority(ctx, Normal)
}

// AcquirePriority is Acquire for a caller with priority p. Acquire itself uses Normal.
func (l *Limiter) AcquirePriority(ctx context.Context, p Priority) (Permit, error) {
	if ctx.Err() != nil {
		return Permit{}, context.Cause(ctx)
	}
	l.lock()
	now := l.now()
	if l.admission.hasRoom() {
		h := l.admission.start(now)
		l.mu.Unlock()
		return Permit{l, h}, nil
	}
	deadline := time.Duration(0)
	if at, ok := ctx.Deadline(); ok {
		deadline = max(at.Sub(l.origin), 1)
	}
	t := newTicket(p)
	if why := l.admission.enqueue(now, deadline, &t.waiter); why != 0 {
		err := l.refusal(p, why)
		l.mu.Unlock()
		return Permit{}, err
	}
	maxWait := l.admission.maxWait
	l.mu.Unlock()
	return l.wait(ctx, t, maxWait)
}

// ticket is a waiter and the channel on which it is woken.
type ticket struct {
	waiter
	ready chan struct{} // of capacity 1: a ticket is woken at most once
}

func newTicket(p Priority) *ticket {
	t := &ticket{ready: make(chan struct{}, 1)}
	t.priority = p
	t.wake = func() { t.ready <- struct{}{} }
	return t
}

// wait blocks until t is granted or refused, maxWait has passed or ctx ends. A maxWait of zero
// means no limit.
func (l *Limiter) wait(ctx context.Context, t *ticket, maxWait time.Duration) (Permit, error) {
	var late <-chan time.Time
	if maxWait > 0 {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case <-t.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-late:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.state == waiting:
		l.admission.queue.remove(&t.waiter)
		if err == nil {
			l.admission.counts.Refused++
			err = l.refusal(t.priority, QueueTooSlow)
		}
	case t.state == refused:
		err = l.refusal(t.priority, t.refusal)
	case err != nil:
		l.admission.finish(l.now(), t.permit, Ignored)
	default:
		return Permit{l, t.permit}, nil
	}
	return Permit{}, err
}

// refusal returns the error for a caller of priority p.
func (l *Limiter) refusal(p Priority, why Reason) error {
	return &RefusedError{why, l.admission.expectedWait(l.admission.queue.ahead(p))}
}

// OutcomeOf returns the outcome of a call that returned err. The first of these rules that applies
// decides:
//
//   - Success if err is nil
//   - Ignored if a breaker or limiter inside the call refused it, so that it did not reach the
//     server: err wraps an error with a method Refused() bool that returns true
//   - TimedOut if err is context.DeadlineExceeded, or wraps an error with a method Timeout() bool
//     that returns true
//   - Overloaded if err wraps an error with a method RetryAfter() time.Duration that returns
//     more than zero
//   - Ignored otherwise.
func OutcomeOf(err error) Outcome {
	var (
		timeout interface{ Timeout() bool }
		hint    interface{ RetryAfter() time.Duration }
		refusal interface{ Refused() bool }
	)
	switch {
	case err == nil:
		return Success
	case errors.As(err, &refusal) && refusal.Refused():
		return Ignored
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	case errors.As(err, &hint) && hint.RetryAfter() > 0:
		return Overloaded
	}
	return Ignored
}
