package retry

import (
	"context"
	"errors"
	"fmt"
)

// Verdict is the result of one poll of a long operation.
type Verdict uint8

// The verdicts.
const (
	ByError     Verdict = iota // decided by the error: nil is Success, any other is handled as in Do
	Success                    // the operation has ended, and the value counts
	NotReady                   // the operation is still running: no failure, and it costs no budget
	Throttled                  // polled too often: wait as Policy or the hint in the error (After) demands
	ServerError                // a failure that may pass
	Fatal                      // the operation will never succeed
)

// String returns the verdict's name in lower case.
func (v Verdict) String() string {
	names := [...]string{"by error", "success", "not ready", "throttled", "server error", "fatal"}
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown verdict"
}

// ErrNotReady is the failure of a poll with the verdict NotReady, found by errors.Is if a Poll
// stops.
var ErrNotReady = errors.New("not ready")

// Poll calls probe until the operation that it asks about has ended: at most 60 times by default,
// and without a wait before the first (but see Options.WaitFirst). The error that comes with a
// verdict is never dropped: with Success it is returned beside the value, and with the others it is
// found in the *Error if Poll stops. A Permanent one stops Poll whatever the verdict.
func Poll[T any](
	ctx context.Context, probe func(context.Context) (T, Verdict, error), opts ...Options,
) (T, error) {
	var value, zero T
	chosen, err := choose(opts)
	if err != nil {
		return zero, &Error{Stop: err}
	}
	o := *chosen
	if o.MaxAttempts == 0 && !o.ends() {
		o.MaxAttempts = defaultPolls
	}
	var verdict Verdict
	op := func(ctx context.Context) (err error) {
		value, verdict, err = probe(ctx)
		switch own := verdict.err(); {
		case own == nil:
			return err
		case err == nil:
			return own
		default:
			return fmt.Errorf("%w: %w", own, err)
		}
	}
	var s sequence
	s.prepare(ctx, &o)
	var stop error
	if o.WaitFirst {
		stop = s.next(ctx, &o, step{action: Retry, notReady: true, patient: true})
	} else {
		stop = s.admit(ctx, &o)
	}
	for stop == nil {
		err := s.poll(&o, op, &verdict)
		if verdict == Success || verdict == ByError && err == nil {
			return value, err
		}
		stop = s.next(ctx, &o, o.judge(verdict, err))
	}
	return zero, s.error(&o, stop)
}

// poll makes one poll. With the verdict Success it is a success, whatever the error.
func (s *sequence) poll(o *Options, op func(context.Context) error, verdict *Verdict) error {
	var err error
	attempt := func(ctx context.Context) error {
		if err = op(ctx); *verdict == Success {
			return nil
		}
		return err
	}
	_ = s.run(o, attempt)
	return err
}

// judge turns a verdict and its error into the outcome of an attempt.
func (o *Options) judge(v Verdict, err error) step {
	if v == ByError {
		action, after := o.classify(err)
		return step{err: err, action: action, after: after}
	}
	own := inspect(err)
	st := step{
		err: err, action: Retry, after: own.after, notReady: v == NotReady, patient: v == NotReady || v == Throttled,
	}
	if own.permanent || v >= Fatal {
		st.action = Fail
	}
	return st
}

var (
	errPolledTooOften = errors.New("polled too often")
	errServerError    = errors.New("server error")
	errFatal          = errors.New("operation failed")
)

// err returns the failure for which the verdict stands; nil for Success and ByError.
func (v Verdict) err() error {
	switch v {
	case ByError, Success:
		return nil
	case NotReady:
		return ErrNotReady
	case Throttled:
		return errPolledTooOften
	case ServerError:
		return errServerError
	case Fatal:
		return errFatal
	}
	return fmt.Errorf("poll returned the unknown verdict %d", v)
}
