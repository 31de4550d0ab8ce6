package retry_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// TestDefaultPolicy checks that without options there are 10 attempts, with waits of the default
// policy, drawn from Rand.
func TestDefaultPolicy(t *testing.T) {
	waits := func(o retry.Options) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			last := time.Now()
			_ = retry.Do(t.Context(), func(context.Context) error {
				all = append(all, time.Since(last))
				last = time.Now()
				return errDown
			}, o)
		})
		return all[1:]
	}
	const seed = 4
	source := func() rand.Source { return rand.NewPCG(seed, 0) }
	policy := backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Full()
	var want []time.Duration
	var state backoff.State
	for src := source(); len(want) < 9; {
		wait, next, _ := policy.Next(state, src)
		want, state = append(want, wait), next
	}
	if got := waits(retry.Options{Rand: source()}); !slices.Equal(got, want) {
		t.Errorf("seed %d: waits %v, want %v", seed, got, want)
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, opts := range map[string][]retry.Options{
		"policy": {{Policy: backoff.Exponential(-time.Second, 2, time.Minute)}},
		"policy, every wait": {
			{Policy: backoff.Limit(backoff.Exponential(time.Second, math.NaN(), time.Minute), 3)}},
		"negative timeout":      {{AttemptTimeout: -1}},
		"negative elapsed time": {{MaxElapsed: -1}},
		"negative failing time": {{MaxFailing: -1}},
		"negative hint":         {{MaxHint: -1}},
		"negative targets":      {{Targets: -1}},
		"two":                   {{}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			ran := false
			op := func(context.Context) error { ran = true; return nil }
			var loop retry.Loop
			for range loop.Attempts(t.Context(), opts...) {
				ran = true
			}
			_, polled := retry.Poll(t.Context(), func(ctx context.Context) (int, error) {
				return 0, op(ctx)
			}, opts...)
			for _, err := range []error{retry.Do(t.Context(), op, opts...), loop.Err(), polled} {
				e, ok := errors.AsType[*retry.Error](err)
				if !ok || !errors.Is(err, retry.ErrOptions) || e.Attempts != 0 || ran {
					t.Errorf("%v, ran: %v; want it refused with ErrOptions", err, ran)
				}
			}
		})
	}
	for _, o := range []retry.HedgeOptions{{Delay: -1}, {MaxAttempts: -1}} {
		_, err := retry.Hedge(t.Context(), func(context.Context) (int, error) {
			return 0, nil
		}, o, nil)
		if !errors.Is(err, retry.ErrOptions) {
			t.Errorf("%+v: %v, want ErrOptions", o, err)
		}
	}
}

// TestValidate checks that Validate and the functions refuse the same options.
func TestValidate(t *testing.T) {
	for _, o := range []retry.Options{
		{}, {AttemptTimeout: -1}, {MaxElapsed: -1}, {MaxFailing: -1}, {MaxHint: -1}, {Targets: -1},
		{Policy: backoff.Fixed(-1)}, {MaxAttempts: -1},
	} {
		err := retry.Do(t.Context(), func(context.Context) error { return nil }, o)
		if valid := o.Validate(); errors.Is(valid, retry.ErrOptions) != errors.Is(err,
			retry.ErrOptions) {
			t.Errorf("%+v: Validate %v, Do %v", o, valid, err)
		}
	}
}
