package retry

import (
	"context"
	"errors"
)

// ErrNotReady is returned by a probe while the operation is still running: see Poll.
var ErrNotReady = errors.New("not ready")

// Poll calls probe until the operation that probe checks has ended, by default at most 60 times. It
// does not wait before the first call, unless Options.WaitFirst is set.
//
// The error of probe decides how Poll continues. Nil ends the poll with the value. After
// ErrNotReady, Poll calls probe again. ErrNotReady is not a failure, and Poll does not ask the
// Budget before it calls probe again. Every other error is handled as in Do: a Permanent error, for
// example, ends the poll. A hint, such as that of HTTP(resp) or After(d, ErrNotReady), demands a
// wait before the next call.
//
// If the poll runs inside an attempt of an outer retry with SuppressNested, it continues after
// ErrNotReady and after an error with a hint. Any other error ends the poll, and the outer retry
// handles it.
func Poll[T any](
	ctx context.Context, probe func(context.Context) (T, error), opts ...Options,
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
	op := func(ctx context.Context) (err error) {
		value, err = probe(ctx)
		return err
	}
	var s sequence
	defer s.end(&o)
	s.prepare(ctx, &o)
	var stop error
	if o.WaitFirst {
		stop = s.next(ctx, &o, &step{action: Retry, notReady: true, patient: true})
	} else {
		stop = s.admit(ctx, &o)
	}
	for stop == nil {
		err := s.run(&o, op)
		if err == nil {
			return value, nil
		}
		outcome := o.judge(err)
		stop = s.next(ctx, &o, &outcome)
	}
	return zero, s.error(&o, stop)
}

// judge describes the error of a poll as a step, from which the next wait is computed. ErrNotReady
// is not a failure.
func (o *Options) judge(err error) step {
	if !errors.Is(err, ErrNotReady) {
		action, after := o.classify(err)
		return step{err: err, action: action, after: after, patient: after > 0}
	}
	own := inspect(err)
	st := step{err: err, action: Retry, after: own.after, notReady: true, patient: true}
	if own.permanent {
		st.action = Fail
	}
	return st
}
