package retry

import (
	"context"
	"errors"
	"fmt"
)

// Verdict is what one poll of a long operation says about it.
type Verdict uint8

// The answers of a poll.
const (
	// ByError leaves it to the error: nil is Success, anything else is for the Classifier.
	ByError Verdict = iota
	// Success: the operation has ended, and the value counts.
	Success
	// NotReady: it is still at work. No failure: it costs no budget and ends a time of failing.
	NotReady
	// Throttled: we ask too often. The policy's wait, or the hint in the error ([After]) where that is longer.
	Throttled
	// ServerError: a failure that may pass; retried unless StopOnServerError is set.
	ServerError
	// Fatal: it will never succeed.
	Fatal
)

// String names the verdict.
func (v Verdict) String() string {
	names := [...]string{"by error", "success", "not ready", "throttled", "server error", "fatal"}
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown verdict"
}

// DefaultPolls is the limit of polls where none is set and the policy has no end: with the default policy about
// a quarter of an hour.
const DefaultPolls = 60

// What a poll has said, found by errors.Is in the *Error of a Poll that stopped.
var (
	ErrNotReady    = errors.New("retry: not ready yet")
	ErrThrottled   = errors.New("retry: asked too often")
	ErrServerError = errors.New("retry: server error")
	ErrFatal       = errors.New("retry: failed for good")
)

// Poll asks probe about a long operation until it has ended, by default at most DefaultPolls times and the first time
// at once (WaitFirst: after the first wait). The error that comes with a verdict is kept, never swallowed: with
// Success it is returned beside the value, with the others it is found in the *Error that Poll ends with.
//
// A poll that the Budget refuses still waits before Poll returns: its caller is likely to ask again at once.
func Poll[T any](ctx context.Context, probe func(context.Context) (T, Verdict, error), opts ...Option) (T, error) {
	r := configure(opts)
	switch {
	case r.MaxAttempts != 0:
	case r.Policy == nil || endless(r.Policy):
		r.MaxAttempts = DefaultPolls
	default:
		r.MaxAttempts = Unlimited
	}
	var value, zero T
	var verdict Verdict
	ask := func(ctx context.Context) (err error) {
		value, verdict, err = probe(ctx)
		return err
	}
	s := sequence{inPoll: true}
	stop := s.begin(ctx, &r)
	if stop == nil && r.WaitFirst {
		stop = s.next(ctx, &r, nil, step{Decision: Decision{Action: Retry}, waited: true, patient: true})
	}
	for stop == nil {
		err := s.poll(&r, ask, &verdict)
		if verdict == Success || verdict == ByError && err == nil {
			return value, err
		}
		st, failure := s.judge(&r, verdict, err)
		stop = s.next(ctx, &r, failure, st)
	}
	return zero, s.error(&r, stop)
}

// poll makes one poll; its verdict, not its error, says whether the service has served it.
func (s *sequence) poll(r *Retrier, ask func(context.Context) error, verdict *Verdict) error {
	err := s.call(r, ask)
	switch {
	case *verdict == Success || *verdict == ByError && err == nil:
		s.ends(r, nil)
	case *verdict == NotReady:
		s.give(r, s.tries, Served)
	default:
		s.give(r, s.tries, Failed)
	}
	return err
}

// judge turns a verdict into a step of the plan, and its error into one that says the verdict.
func (s *sequence) judge(r *Retrier, v Verdict, err error) (step, error) {
	if v == ByError {
		return step{Decision: r.classify(err, s.tries)}, err
	}
	d := Decision{Action: Retry}
	failure := verdictError(v)
	if err != nil {
		var permanent bool
		if permanent, d.After = inspect(err); permanent {
			d.Action = Fail
		}
		failure = fmt.Errorf("%w: %w", failure, err)
	}
	if v >= Fatal || v == ServerError && r.StopOnServerError {
		d.Action = Fail
	}
	return step{Decision: d, waited: v == NotReady, patient: v == NotReady || v == Throttled}, failure
}

// verdictError is the error of a verdict that came without one.
func verdictError(v Verdict) error {
	switch v {
	case NotReady:
		return ErrNotReady
	case Throttled:
		return ErrThrottled
	case ServerError:
		return ErrServerError
	case Fatal:
		return ErrFatal
	}
	return fmt.Errorf("retry: poll answered with the unknown verdict %d", v)
}
