package supervise_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// TestLongestTimes checks that the longest Duration does not overflow as a Shutdown, a delay or a
// pause. As a Shutdown it means no limit, like infinity in Erlang/OTP.
func TestLongestTimes(t *testing.T) {
	const forever = math.MaxInt64
	broken := errors.New("broken")
	slow := supervise.Child{Name: "slow", Shutdown: forever, Run: func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(time.Hour)
		return nil
	}}
	failing := func(starts *int) supervise.Child {
		return supervise.Child{Name: "failing", Run: func(context.Context) error {
			*starts++
			return broken
		}}
	}
	for name, c := range map[string]struct {
		spec  supervise.Spec
		child func(starts *int) supervise.Child
		want  time.Duration // of Serve, which is told to stop after an hour
	}{
		"shutdown of a child": {supervise.Spec{}, func(starts *int) supervise.Child {
			*starts++
			return slow
		}, 2 * time.Hour},
		"shutdown": {supervise.Spec{Shutdown: forever}, func(starts *int) supervise.Child {
			*starts++
			return slow
		}, 2 * time.Hour},
		"backoff": {supervise.Spec{Backoff: backoff.Fixed(forever)}, failing, time.Hour},
		"pause": {supervise.Spec{Decay: &supervise.Decay{Threshold: .5, Pause: forever}}, failing,
			time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				inner, err := supervise.New("inner", c.spec, c.child(&starts))
				if err != nil {
					t.Fatal(err)
				}
				outer, err := supervise.New("outer", supervise.Spec{},
					supervise.Child{Service: inner})
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err = outer.Serve(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != c.want {
					t.Errorf("Serve ended after %v, want %v: %v", time.Since(begun), c.want, err)
				}
				if starts != 1 {
					t.Errorf("%d starts, want 1", starts)
				}
			})
		})
	}
}
