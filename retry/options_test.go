package retry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// TestSettings: without options the waits are those of DefaultPolicy, DefaultAttempts attempts in all, drawn from Rand; Using takes
// the settings of a Retrier, which options after it change.
func TestSettings(t *testing.T) {
	waits := func(opts ...retry.Option) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			last := time.Now()
			_ = retry.Do(t.Context(), func(context.Context) error {
				all = append(all, time.Since(last))
				last = time.Now()
				return errors.New("away")
			}, opts...)
		})
		return all[1:]
	}
	const seed = 4
	source := func() rand.Source { return rand.NewPCG(seed, 0) }
	want := make([]time.Duration, 0, retry.DefaultAttempts-1)
	var state backoff.State
	for src := source(); len(want) < cap(want); {
		wait, next, _ := retry.DefaultPolicy().Next(state, src)
		want, state = append(want, wait), next
	}
	if got := waits(retry.Rand(source())); !slices.Equal(got, want) {
		t.Errorf("seed %d: waits %v, want %v", seed, got, want)
	}
	settings := retry.Retrier{Policy: backoff.Fixed(time.Second), MaxAttempts: 3}
	if got := waits(retry.MaxAttempts(9), retry.Using(settings)); !slices.Equal(got, []time.Duration{time.Second, time.Second}) {
		t.Errorf("with settings: waits %v, want two of 1s", got)
	}
	if got := waits(retry.Using(settings), retry.MaxAttempts(2)); !slices.Equal(got, []time.Duration{time.Second}) {
		t.Errorf("with settings and an option: waits %v, want one of 1s", got)
	}
}
