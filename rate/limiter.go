// Package rate limits the number of events per time, such as requests per minute. It also follows
// the limits that servers state in their response headers.
//
//	limiter, err := rate.New(rate.Options{Events: 100, Per: time.Minute, Burst: 10})
//	...
//	if err := limiter.Wait(ctx); err != nil {
//		return err // refused, or ctx ended while waiting
//	}
//	call(ctx)
//
// Callers of [Limiter.Wait] wait in order of arrival, in a bounded queue. A caller whose deadline
// is too soon is refused at once. [Limiter.Allow] does not wait. [Limiter.Reserve] books an event
// for later. [Limiter.Observe] adds the limits that a server states, as read by [ParseHeaders].
// Package ratehttp applies limiters to an http.Client.
//
// [Bucket] (token bucket) and [GCRA] are the algorithms alone, for programs that have an event loop
// or a table with many users. [Limiter.Budget] lets package retry ask a limiter before each
// attempt.
//
// The package starts no goroutine and runs under testing/synctest. Allow allocates nothing, and
// neither does Wait if the event may happen at once.
package rate

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Options configures a Limiter. With the zero value, only the limits that servers state delay
// events.
type Options struct {
	// Events is the number of events allowed in each Per, in the long run. Zero means no limit.
	Events float64
	Per    time.Duration // Zero means 1s.

	// Burst is the number of events allowed at once after a pause. Zero means 1. Burst has no
	// effect if Events is zero.
	Burst int

	// MaxWaiting bounds the number of callers that wait. Zero means 1000. If it is negative, no
	// caller waits: a caller is refused if its events may not happen at once.
	MaxWaiting int

	// MaxPause bounds the times RetryAfter and Reset of an observed Advice, but not its Window. A
	// jitter of up to a tenth is added. Zero means 5 minutes.
	MaxPause time.Duration
}

const (
	defaultWaiting  = 1000
	defaultMaxPause = 5 * time.Minute
)

// Validate returns an error that names the invalid option.
func (o Options) Validate() error {
	switch {
	case !(o.Events >= 0) || math.IsInf(o.Events, 1):
		return fmt.Errorf("rate: Events is %v, want a number from 0", o.Events)
	case o.Per < 0:
		return fmt.Errorf("rate: Per is %v, want 0 or more", o.Per)
	case o.Burst < 0:
		return fmt.Errorf("rate: Burst is %d, want 0 or more", o.Burst)
	case o.MaxPause < 0:
		return fmt.Errorf("rate: MaxPause is %v, want 0 or more", o.MaxPause)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Per = cmp.Or(o.Per, time.Second)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, defaultWaiting)
	o.MaxPause = cmp.Or(o.MaxPause, defaultMaxPause)
	return o
}

// Reason is the reason for which a caller was refused.
type Reason uint8

// Reasons for which a caller is refused.
const (
	_            Reason = iota
	QueueFull           // Options.MaxWaiting callers wait already, or waiting is off
	DeadlineSoon        // its context would end before the event may happen
	TooMany             // it wants more events at once than Options.Burst
)

var reasonNames = [...]string{"", "queue is full", "deadline is too soon", "more events than " +
	"the burst"}

// String returns the reason in words, such as "queue is full".
func (r Reason) String() string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// RefusedError is returned if the event is not allowed.
type RefusedError struct {
	Reason Reason
	Wait   time.Duration // time until the event could happen; zero means never or not known
}

// Error names the reason and, if known, the expected wait.
func (e *RefusedError) Error() string {
	if e.Wait == 0 {
		return "rate limit: " + e.Reason.String()
	}
	return fmt.Sprintf("rate limit: %v (expected wait %v)", e.Reason, e.Wait)
}

// RetryAfter returns Wait, the hint that package retry follows.
func (e *RefusedError) RetryAfter() time.Duration { return e.Wait }

// Refused returns true, because the call was not made. A breaker or another limiter around the call
// ignores the error.
func (e *RefusedError) Refused() bool { return true }

// LogValue implements slog.LogValuer. It returns a group of msg, reason and wait. An unknown wait
// is left out.
func (e *RefusedError) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("msg", e.Error()), slog.String("reason", e.Reason.String())}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return slog.GroupValue(attrs...)
}

// Limiter bounds the rate of events. It is safe for concurrent use. Make one with [New].
type Limiter struct {
	origin     time.Time
	maxWaiting int

	mu     sync.Mutex
	pacer  *pacer    // guarded by mu, as all that follows
	queue  list.List // of *caller, in order of arrival; only the first has a timer
	wanted int       // number of events that all callers in queue want
}

// caller is a caller in the queue.
type caller struct {
	n    int
	wake chan struct{} // of capacity 1: the caller is the first now, or must check again
}

// New returns a Limiter that allows a full burst at once.
func New(o Options) (*Limiter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	return &Limiter{origin: time.Now(), maxWaiting: max(o.MaxWaiting, 0), pacer: newPacer(o)}, nil
}

func (l *Limiter) now() time.Duration { return time.Since(l.origin) }

// Allow reports whether an event may happen now. It returns false while other callers wait.
func (l *Limiter) Allow() bool { return l.AllowN(1) }

// AllowN is Allow for n events at once. n below 1 is always allowed.
func (l *Limiter) AllowN(n int) bool {
	if n < 1 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len() == 0 && l.pacer.take(l.now(), n)
}

// Wait blocks until an event may happen. The error is a *[RefusedError], or the cause with which
// ctx ended.
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN is Wait for n events at once.
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n < 1 {
		return nil
	}
	l.mu.Lock()
	now := l.now()
	if l.queue.Len() == 0 && l.pacer.take(now, n) {
		l.mu.Unlock()
		return nil
	}
	if err := l.check(ctx, now, n); err != nil {
		l.mu.Unlock()
		return err
	}
	c := &caller{n: n, wake: make(chan struct{}, 1)}
	place := l.queue.PushBack(c)
	l.wanted += n
	l.mu.Unlock()
	return l.await(ctx, c, place)
}

// check returns an error if a caller must not wait. l.mu is held.
func (l *Limiter) check(ctx context.Context, now time.Duration, n int) error {
	if l.pacer.limited && n > l.pacer.burst {
		return &RefusedError{Reason: TooMany}
	}
	wait := l.pacer.wait(now, l.wanted, n)
	if deadline, ok := ctx.Deadline(); ok && wait > deadline.Sub(l.origin)-now {
		return &RefusedError{DeadlineSoon, wait}
	}
	if l.queue.Len() >= l.maxWaiting {
		return &RefusedError{QueueFull, wait}
	}
	return nil
}

// await blocks until c is the first in the queue and its events may happen, or ctx ends. It then
// removes c from the queue.
func (l *Limiter) await(ctx context.Context, c *caller, place *list.Element) error {
	var timer *time.Timer
	for {
		l.mu.Lock()
		var due <-chan time.Time
		if l.queue.Front() == place {
			now := l.now()
			if l.pacer.take(now, c.n) {
				l.leave(c, place)
				l.mu.Unlock()
				return nil
			}
			wait := max(l.pacer.wait(now, 0, c.n), 1)
			if timer == nil {
				timer = time.NewTimer(wait)
				defer timer.Stop()
			} else {
				timer.Reset(wait)
			}
			due = timer.C
		}
		l.mu.Unlock()
		select {
		case <-c.wake:
		case <-due:
		case <-ctx.Done():
			l.mu.Lock()
			l.leave(c, place)
			l.mu.Unlock()
			return context.Cause(ctx)
		}
	}
}

// leave takes a caller out of the queue and wakes the first one. l.mu is held.
func (l *Limiter) leave(c *caller, place *list.Element) {
	l.queue.Remove(place)
	l.wanted -= c.n
	l.wakeFirst()
}

// wakeFirst makes the first caller in the queue check again. l.mu is held.
func (l *Limiter) wakeFirst() {
	if first := l.queue.Front(); first != nil {
		select {
		case first.Value.(*caller).wake <- struct{}{}:
		default: // it will check anyway
		}
	}
}

// Reservation is a number of events that Reserve has counted in advance. They may happen after
// Delay.
type Reservation struct {
	Delay   time.Duration // time after which the events may happen; zero means now
	limiter *Limiter
	n       int
	at      time.Duration
}

// Reserve books n events. Make them happen after the Delay of the result, or give them up by
// Reservation.Cancel. Booked events happen before those of the callers that are waiting already,
// which wait longer. Reserve returns false if n exceeds the burst.
func (l *Limiter) Reserve(n int) (Reservation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.pacer.limited && n > l.pacer.burst {
		return Reservation{}, false
	}
	n = max(n, 0)
	wait := l.pacer.reserve(now, n)
	return Reservation{wait, l, n, plus(now, wait)}, true
}

// Cancel cancels the reserved events if their time has not come. Call it at most once. Events that
// were reserved for a later time keep it, even if they are canceled, too. So if there are many,
// canceling r does not make other events happen earlier.
func (r Reservation) Cancel() {
	if r.limiter == nil {
		return
	}
	l := r.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now < r.at {
		l.pacer.giveBack(now, r.at, r.n)
		l.wakeFirst()
	}
}

// Observe applies the advice of a server: it allows no event until RetryAfter has passed, and at
// most Remaining events until Reset has passed. Options.MaxPause bounds both times. A random jitter
// prolongs these pauses by up to a tenth, so that clients do not all return at the same time. After
// Reset, at most Limit events are allowed in each Window, if the advice has both.
func (l *Limiter) Observe(a Advice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pacer.observe(l.now(), a, rand.Float64())
	l.wakeFirst()
}

// Status is a snapshot of a Limiter.
type Status struct {
	Waiting      int
	ExpectedWait time.Duration // wait of a new caller; zero if an event may happen now
	PausedFor    time.Duration // remaining pause that a server asked for
	Remaining    int           // events left in the quota that a server stated; -1 if unknown
}

// Status returns a snapshot of l.
func (l *Limiter) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := Status{
		Waiting: l.queue.Len(), ExpectedWait: l.pacer.wait(now, l.wanted, 1),
		PausedFor: max(l.pacer.resumes-now, 0),
		Remaining: -1,
	}
	if l.pacer.quota.ends > 0 {
		s.Remaining = max(l.pacer.quota.left, 0)
	}
	return s
}

// Budget adapts l to package retry, which calls it before each attempt. Attempts wait as in Wait.
func (l *Limiter) Budget() Budget { return Budget{l} }

// Budget implements retry.Budget with a limiter. It is safe for concurrent use.
type Budget struct{ limiter *Limiter }

// Allow waits until an attempt is allowed.
func (b Budget) Allow(ctx context.Context) error { return b.limiter.Wait(ctx) }

// Report does nothing: the rate of attempts does not depend on how they end.
func (b Budget) Report(context.Context, error) {}
