package breaker_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
)

// TestLongestWaits checks that a breaker stays open for as long as Wait or a hint demands, however
// long that is.
func TestLongestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			wait backoff.Policy
			hint time.Duration
		}{
			"policy": {backoff.Fixed(math.MaxInt64), 0},
			"hint":   {backoff.Fixed(time.Second), math.MaxInt64},
		} {
			b := newBreaker(t, breaker.Options{Failures: 1, Wait: c.wait})
			time.Sleep(time.Hour)
			_ = do(b, hintOf(c.hint))
			time.Sleep(time.Hour)
			if err := do(b, nil); wait(err) < math.MaxInt64/2 {
				t.Errorf("%s: after an hour the call ended with %v", name, err)
			}
		}
	})
}

type hintOf time.Duration

func (hintOf) Error() string               { return "down" }
func (h hintOf) RetryAfter() time.Duration { return time.Duration(h) }

// TestEndlessProbe checks that with the longest ProbeTimeout, a probe is never given up.
func TestEndlessProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Options{Failures: 1, Wait: backoff.Fixed(time.Second),
			ProbeTimeout: math.MaxInt64})
		_ = do(b, errDown)
		time.Sleep(time.Second)
		probe, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := do(b, nil); wait(err) != 0 {
			t.Errorf("a call beside the probe ended with %v, want a refusal", err)
		}
		probe.Done(nil)
		if s := b.State(); s != breaker.Closed {
			t.Errorf("after the probe the breaker is %v", s)
		}
	})
}
