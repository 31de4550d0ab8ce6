package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Each delivers every value of seq to one of the lanes, at the pace that each lane can bear, and
// returns nil when all are delivered. The lanes are names, such as URLs. deliver gets a value and
// the name of its lane, and is called by several goroutines at a time. The speed of the lanes is
// measured: a slow lane gets fewer values, and a failing lane is paused and probed.
//
// The error of deliver is the outcome, as for [Worker]; see [HTTPOutcome]. After a failed delivery
// the value is sent again, to another lane or after a delay, until it is delivered. So deliver may
// get a value twice. To give a value up, return a [*Rejected]: errors that are marked by other
// packages, such as retry.Permanent, count as failures that may pass. The context of a call ends
// when it takes longer than [DefaultAbandon].
//
// Each returns early, after all calls of deliver have returned, if
//   - ctx ends: the error wraps its cause and the last failure of deliver,
//   - a value is rejected: the error wraps the *Rejected,
//   - every lane is misconfigured: the error wraps a *Misconfigured,
//   - deliver or seq panics: the error is a *PanicError.
//
// After an early return the caller does not know which values were not delivered. To dead-letter
// rejected values, to log failures or to resume after a crash, use [New] or [OpenBook].
//
// seq runs on a goroutine of its own, and is not interrupted: a seq that waits for data must watch
// ctx itself.
func Each[T any](ctx context.Context, seq iter.Seq[T], lanes []string,
	deliver func(ctx context.Context, lane string, value T) error) error {
	switch {
	case seq == nil || deliver == nil:
		return errors.New("flow: each: want a sequence and a function to deliver its values")
	case len(lanes) == 0:
		return errors.New("flow: each: want at least one lane")
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var last error // the last failure
	o := Options[T]{
		Failed: func(_ context.Context, _ Item[T], f Failure) {
			if panicked, ok := errors.AsType[*PanicError](f.Err); ok {
				cancel(panicked)
			}
			last = fmt.Errorf("lane %q: %w", f.Lane, f.Err)
		},
	}
	for _, name := range lanes {
		worker := WorkerFunc[T](func(ctx context.Context, a Attempt[T]) (Report, error) {
			return Report{}, deliver(ctx, name, a.Value)
		})
		o.Lanes = append(o.Lanes, Lane[T]{Name: name, Worker: worker})
	}
	sender, err := New(o)
	if err != nil {
		return err
	}
	next, stop := iter.Pull(seq)
	defer stop()
	err = sender.Run(run, ProducerFunc[T](func(context.Context) (Item[T], error) {
		value, ok := next()
		if !ok {
			return Item[T]{}, io.EOF
		}
		return Item[T]{Value: value}, nil
	}))
	if err != nil && last != nil && ctx.Err() != nil {
		return fmt.Errorf("flow: each: %w; the last failure: %w", err, last)
	}
	return err
}
