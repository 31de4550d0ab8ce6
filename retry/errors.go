package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// The reasons for which a retry stops, in Error.Stop. If it stops because the caller's context has
// ended, Stop wraps the context's error and cause instead. If the next wait would have outlived the
// context's deadline, Stop matches context.DeadlineExceeded.
var (
	// ErrPermanent means that the failure was marked by Permanent or classified as Fail.
	ErrPermanent = errors.New("retry: not retryable")
	// ErrExhausted means that MaxAttempts was reached or Policy gave up.
	ErrExhausted = errors.New("retry: no attempts left")
	// ErrElapsed means that the next attempt would have begun after MaxElapsed or MaxFailing.
	ErrElapsed = errors.New("retry: time limit reached")
	// ErrHint means that the server asked for a longer wait than MaxHint. Error.After holds the
	// wait.
	ErrHint = errors.New("retry: asked to wait too long")
	// ErrBudget means that the Budget refused the attempt. Error.Stop also wraps the budget's own
	// error.
	ErrBudget = errors.New("retry: refused by the budget")
	// ErrNested means that an outer retry with SuppressNested will try again.
	ErrNested = errors.New("retry: left to the outer retry")
	// ErrNotRepeatable means that the HTTP request cannot be sent again: it is not idempotent, or
	// its body cannot be read again.
	ErrNotRepeatable = errors.New("retry: request cannot be sent again")
	// ErrOptions means that the options are invalid. No attempt was made.
	ErrOptions = errors.New("retry: invalid options")
)

// ErrAttemptTimeout is the cause of an attempt's context that ended by Options.AttemptTimeout.
var ErrAttemptTimeout error = attemptTimeoutError{}

// errDeadline means that the next wait would have outlived the context's deadline.
var errDeadline error = &deadlineError{}

// errAbandoned means that the body of a Loop left the range after a failure, or continued without a
// call of End.
var errAbandoned = errors.New("retry: loop left")

type deadlineError struct{}

func (*deadlineError) Error() string   { return "retry: the next wait would outlive the deadline" }
func (*deadlineError) Is(t error) bool { return t == context.DeadlineExceeded }
func (*deadlineError) Timeout() bool   { return true }
func (*deadlineError) Temporary() bool { return true }

type attemptTimeoutError struct{}

func (attemptTimeoutError) Error() string   { return "retry: attempt timed out" }
func (attemptTimeoutError) Timeout() bool   { return true }
func (attemptTimeoutError) Temporary() bool { return true }

// maxErrors is the number of failures that an Error keeps.
const maxErrors = 8

// Error is the error of a retry that stopped. It never changes once returned.
type Error struct {
	// Stop is the reason. Compare it with errors.Is to the errors from ErrPermanent to ErrOptions,
	// and to those of package context. It matches none of them if the body of a Loop left the range
	// after a failure, or continued without calling End.
	Stop error
	// Last is the failure of the last attempt, or of the refresh after it. Nil if nothing has
	// failed.
	Last error
	// Attempts is the number of attempts made.
	Attempts int
	// Elapsed is the time from the call to the stop. There is an exception: if none of MaxElapsed,
	// AttemptTimeout, Budget, OnEvent, Key and SuppressNested is set, the clock is not read at the
	// call. Elapsed then counts from the first wait or, with MaxFailing, from the first failure.
	Elapsed time.Duration
	// Waited is the part of Elapsed spent waiting between attempts.
	Waited time.Duration
	// After is the wait for which the server asked, if Stop is ErrHint.
	After time.Duration
	// Errs holds the failures, oldest first. If there were more than 8 failures, it holds the first
	// one and the last 7.
	Errs []error
}

// reason returns the text of Stop, also if it is nil.
func (e *Error) reason() string {
	if e.Stop == nil {
		return "stopped"
	}
	return e.Stop.Error()
}

// Error implements error: the last failure, then why and when the retry stopped, as in
// "connection refused (no attempts left, attempt 3 after 1.2s)". If the last failure is the refusal
// of a breaker or limiter, the failure before it follows, as in "circuit breaker is open: next
// probe in 489ms, after connection refused (no attempts left, ...)".
func (e *Error) Error() string {
	stop := e.reason()
	if e.Last == nil {
		return stop
	}
	var b strings.Builder
	reason := strings.TrimPrefix(stop, "retry: ")
	fmt.Fprintf(&b, "%s (%s, attempt %d", e.last(), reason, e.Attempts)
	if d := e.Elapsed.Round(time.Millisecond); d > 0 {
		b.WriteString(" after " + d.String())
	}
	if e.After > 0 {
		b.WriteString(", asked to wait " + e.After.String())
	}
	b.WriteByte(')')
	return b.String()
}

// last returns the text of Last. If Last is a refusal, the text also has the latest other failure,
// which is the likely reason for the refusal.
func (e *Error) last() string {
	if isRefusal(e.Last) {
		for _, err := range slices.Backward(e.Errs) {
			if !isRefusal(err) {
				return fmt.Sprintf("%v, after %v", e.Last, err)
			}
		}
	}
	return e.Last.Error()
}

// isRefusal reports whether a breaker or limiter has refused the attempt.
func isRefusal(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// Unwrap returns the kept failures, the last one first, and then the reason for the stop. Thus
// errors.As finds the latest failure that has the wanted type.
func (e *Error) Unwrap() []error {
	all := make([]error, 0, len(e.Errs)+1)
	for i := len(e.Errs) - 1; i >= 0; i-- {
		all = append(all, e.Errs[i])
	}
	return append(all, e.Stop)
}

// Timeout reports whether the last failure or the reason for the stop was a timeout, as in
// net.Error.
func (e *Error) Timeout() bool { return isTimeout(e.Last) || isTimeout(e.Stop) }

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// Permanent reports whether the retry stopped because of ErrPermanent or ErrOptions. A breaker
// around the retry ignores such an error.
func (e *Error) Permanent() bool {
	return errors.Is(e.Stop, ErrPermanent) || errors.Is(e.Stop, ErrOptions)
}

// LogValue implements slog.LogValuer. It returns a group of msg (if there is a failure), reason,
// attempts, elapsed, waited and, for ErrHint, after.
func (e *Error) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 6)
	if e.Last != nil {
		attrs = append(attrs, slog.String("msg", e.last()))
	}
	attrs = append(attrs, slog.String("reason", e.reason()), slog.Int("attempts", e.Attempts),
		slog.Duration("elapsed", e.Elapsed), slog.Duration("waited", e.Waited))
	if e.After > 0 {
		attrs = append(attrs, slog.Duration("after", e.After))
	}
	return slog.GroupValue(attrs...)
}

// fallbackError is returned if both a retry and its fallback failed.
type fallbackError struct{ retry, fallback error }

// Error implements error.
func (e *fallbackError) Error() string {
	return fmt.Sprintf("%v; fallback: %v", e.retry, e.fallback)
}

// Unwrap returns both failures, the later one first.
func (e *fallbackError) Unwrap() []error { return []error{e.fallback, e.retry} }

// Timeout reports whether the fallback failed by a timeout, as in net.Error.
func (e *fallbackError) Timeout() bool { return isTimeout(e.fallback) }

// LogValue implements slog.LogValuer. It returns a group of msg and retry.
func (e *fallbackError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("msg", e.fallback.Error()), slog.Any("retry", e.retry))
}

// LogValue implements slog.LogValuer with the value of the cause.
func (m *mark) LogValue() slog.Value {
	if m.cause == nil {
		return slog.StringValue(m.Error())
	}
	return slog.AnyValue(m.cause)
}

// LogValue implements slog.LogValuer. It returns a group of msg and stack.
func (e *PanicError) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("msg", fmt.Sprint(e.Value)), slog.String("stack", string(e.Stack)))
}

// stoppedBy reports whether err is from a retry that stopped for one of the reasons.
func stoppedBy(err error, reasons ...error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && slices.ContainsFunc(reasons, func(reason error) bool {
		return errors.Is(e.Stop, reason)
	})
}

// ended returns the error of ctx, with its cause if that differs, or nil if ctx has not ended.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && cause != err {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// failures keeps the first failure and the last maxErrors-1.
type failures struct {
	first error
	last  *[maxErrors - 1]error // nil before the second failure
	n     int                   // failures after the first
}

func (f *failures) add(err error) {
	if f.first == nil {
		f.first = err
		return
	}
	if f.last == nil {
		f.last = new([maxErrors - 1]error)
	}
	f.last[f.n%len(f.last)] = err
	f.n++
}

// list returns the kept failures, oldest first.
func (f *failures) list() []error {
	if f.first == nil {
		return nil
	}
	all := make([]error, 1, 1+min(f.n, len(f.last)))
	all[0] = f.first
	for i := max(0, f.n-len(f.last)); i < f.n; i++ {
		all = append(all, f.last[i%len(f.last)])
	}
	return all
}
