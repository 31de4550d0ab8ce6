//penstock:pure

package retry

import (
	"cmp"
	"time"
)

// Action is how to handle a failure.
type Action uint8

// The actions.
const (
	Undecided Action = iota // leave it to the function Classify
	Retry                   // wait and try again
	Fail                    // stop: trying again cannot help, or may do harm
	Failover                // try the next of Options.Targets
	Refresh                 // call Options.Refresh, then try again
	// Progress means that the attempt did some of the work before it failed: try again. The number
	// of attempts, the waits and MaxFailing start over, as if this failure were the first one.
	Progress
)

// String returns the action's name in lower case.
func (a Action) String() string {
	names := [...]string{Undecided: "undecided", Retry: "retry", Fail: "fail",
		Failover: "failover", Refresh: "refresh", Progress: "progress"}
	if int(a) < len(names) {
		return names[a]
	}
	return "unknown action"
}

// Classify is the default classification of failures. A function for Options.Classify can call it.
// It applies these rules, in this order:
//
//   - An error marked by Permanent is Fail, and so is an inner retry's *Error that stopped with
//     ErrPermanent or ErrOptions.
//   - An error with a method Action() Action decides for itself, as *StatusError does, unless the
//     method returns Undecided.
//   - A network failure that another attempt cannot fix is Fail. The request may be at fault: an
//     unsupported URL scheme, a malformed URL, address, method or header, or a body that is longer
//     or shorter than declared. Other examples are an unknown host, too many redirects, a server
//     without TLS, a certificate that cannot be verified, and a TLS handshake that the server
//     refuses.
//   - Everything else is Retry.
//
// The rules also apply to causes, at any depth.
func Classify(err error) Action { return inspect(err).classify(err) }

// mark is the error of Permanent and After: it tells the enclosing retry to stop, or how long to
// wait.
type mark struct {
	cause     error // nil if the mark is a hint without a failure
	after     time.Duration
	permanent bool
}

// Error implements error with the text of the cause.
func (m *mark) Error() string {
	if m.cause == nil {
		return "retry after " + max(m.after, 0).String()
	}
	return m.cause.Error()
}

// Unwrap returns the cause.
func (m *mark) Unwrap() error { return m.cause }

// Permanent reports whether the error is not worth another attempt. Package breaker, which does not
// import this package, calls it through an interface.
func (m *mark) Permanent() bool {
	v := inspect(m)
	return v.permanent || final(v.action)
}

// final reports whether a failure with the action a is not worth another attempt without a change,
// such as a fresh token.
func final(a Action) bool { return a == Fail || a == Refresh }

// Permanent marks err so that no retry around it tries again, regardless of Options.Classify. The
// mark is found at any depth of a chain of causes. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &mark{cause: err, permanent: true}
}

// After wraps err and demands that the next attempt begin no sooner than d from now. A d above
// Options.MaxHint stops the retry, unless Options.ClampHint is set. After(d, nil) is an error that
// holds only this demand. A d of 0 or less has an effect only with Options.ExactHint, and only if
// err contains no longer hint.
func After(d time.Duration, err error) error {
	if d <= 0 {
		d = -1
	}
	return &mark{cause: err, after: d}
}

// verdict holds the statements that an error and its causes make about retries: permanent, an
// action, and a wait.
type verdict struct {
	permanent bool
	action    Action
	after     time.Duration // 0 means no hint, negative no wait
}

// classify is Classify for an error that has been inspected.
func (v verdict) classify(err error) Action {
	switch {
	case v.permanent:
		return Fail
	case v.action != Undecided:
		return v.action
	case permanentNetworkError(err):
		return Fail
	}
	return Retry
}

// inspect returns the verdict that err and its causes contain. If several of these errors have a
// hint, the first hint above 0 counts. The same holds for actions. If err contains the failures of
// an inner retry, only the last failure counts, because the hints of earlier ones are outdated.
func inspect(err error) (v verdict) {
	for err != nil && !v.permanent {
		switch e := err.(type) {
		case *mark:
			v.permanent = e.permanent
			v.after, err = firstHint(v.after, e.after), e.cause
			continue
		case *Error:
			v.permanent, err = e.Permanent(), e.Last
			continue
		}
		if e, ok := err.(interface{ Action() Action }); ok {
			v.action = cmp.Or(v.action, e.Action())
		}
		if e, ok := err.(interface{ RetryAfter() time.Duration }); ok {
			v.after = firstHint(v.after, e.RetryAfter())
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			continue
		case interface{ Unwrap() []error }:
			for _, cause := range e.Unwrap() {
				inner := inspect(cause)
				if inner.permanent {
					v.permanent = true
					return v
				}
				v.action = cmp.Or(v.action, inner.action)
				v.after = firstHint(v.after, inner.after)
			}
		}
		break
	}
	return v
}

// firstHint returns a if it is a hint above 0, and otherwise b. If b is no hint, it returns a.
func firstHint(a, b time.Duration) time.Duration { return cmp.Or(max(a, 0), b, a) }

// classify returns the action and the hint for the failure of an attempt.
func (o *Options) classify(err error) (Action, time.Duration) {
	v := inspect(err)
	if v.permanent {
		return Fail, v.after
	}
	action := Undecided
	if o.Classify != nil {
		action = o.Classify(err)
	}
	if action == Undecided {
		action = v.classify(err)
	}
	if action == Refresh && o.Refresh == nil || action > Progress {
		action = Fail
	}
	return action, v.after
}
