package flow

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
)

// TestLongestTimes checks that the longest Duration does not overflow. As a limit it means no
// limit, and as a wait it never ends.
func TestLongestTimes(t *testing.T) {
	const forever = math.MaxInt64
	for name, c := range map[string]struct {
		abandon time.Duration
		control control.Config
		err     error // of all attempts
	}{
		"limits": {forever, control.Config{Timeout: forever}, nil},
		"retry": {0, control.Config{Retry: backoff.Fixed(forever)},
			errors.New("down")},
		"probe": {0, control.Config{Retry: backoff.Fixed(0),
			Breaker: control.Breaker{Probe: backoff.Fixed(forever)}}, &Misconfigured{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				w := WorkerFunc[int](func(ctx context.Context, _ Attempt[int]) (Report, error) {
					attempts++
					if c.err != nil {
						return Report{}, c.err
					}
					select {
					case <-ctx.Done():
						return Report{}, context.Cause(ctx)
					case <-time.After(time.Hour):
						return Report{}, nil
					}
				})
				d := newLog[int](t)
				o := d.options(d.lane("a", w))
				o.Abandon, o.Control, o.AwaitRepair = c.abandon, c.control, true
				s, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // so that sums with the time since New overflow
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				err = s.Run(ctx, these(values(1)...))
				if (err == nil) != (c.err == nil) || attempts != 1 {
					t.Errorf("Run returned %v after %d attempts, want one", err, attempts)
				}
			})
		})
	}
}
