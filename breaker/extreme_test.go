package breaker_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
)

// TestLongestWaits checks that a breaker stays open for as long as Wait demands, and for as long as
// the RetryAfter of an error demands if MaxHint allows that. Both may be the longest Duration.
func TestLongestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			wait backoff.Policy
			hint time.Duration
		}{
			"policy": {backoff.Fixed(math.MaxInt64), 0},
			"hint":   {backoff.Fixed(time.Second), math.MaxInt64},
		} {
			b := newBreaker(t, breaker.Options{Failures: 1, Wait: c.wait,
				MaxHint: math.MaxInt64})
			time.Sleep(time.Hour)
			_ = do(b, hinted(c.hint))
			time.Sleep(time.Hour)
			if err := do(b, nil); wait(err) < math.MaxInt64/2 {
				t.Errorf("%s: after an hour the call ended with %v", name, err)
			}
		}
	})
}

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

// TestMaxHint checks that a hint keeps a breaker open for at most MaxHint.
func TestMaxHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ most, hint, want time.Duration }{
			{0, time.Minute, time.Minute},
			{0, math.MaxInt64, 5 * time.Minute},
			{time.Second, time.Hour, time.Second},
			{time.Hour, 30 * time.Minute, 30 * time.Minute},
		} {
			b := newBreaker(t, breaker.Options{Failures: 1, Wait: backoff.Fixed(0),
				MaxHint: c.most})
			_ = do(b, hinted(c.hint))
			if err := do(b, nil); wait(err) != c.want {
				t.Errorf("MaxHint %v, hint %v: %v, want a wait of %v", c.most, c.hint, err, c.want)
			}
		}
	})
}

// TestProbeTimeoutWithoutWait checks that after a probe has timed out, and if the policy demands no
// wait, the next call is a probe. Both changes of state are reported.
func TestProbeTimeoutWithoutWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		b := newBreaker(t, breaker.Options{Failures: 1, Wait: backoff.Fixed(0),
			ProbeTimeout: time.Second,
			OnChange: func(c breaker.Change) {
				changes = append(changes, fmt.Sprint(c.From, " ", c.To))
			}})
		_ = do(b, errDown)
		if _, err := b.Allow(); err != nil {
			t.Fatal(err)
		}
		if err := do(b, nil); wait(err) != 0 || !strings.Contains(err.Error(), "half-open") {
			t.Errorf("a call beside the probe ended with %v, want a refusal", err)
		}
		time.Sleep(time.Second)
		if err := do(b, nil); err != nil {
			t.Errorf("the call after the timeout of the probe ended with %v", err)
		}
		want := "[closed open open half-open half-open open open half-open half-open closed]"
		if got := fmt.Sprint(changes); got != want {
			t.Errorf("changes %s, want %s", got, want)
		}
	})
}

// panicking is a policy that panics.
type panicking struct{}

func (panicking) Next(backoff.State, rand.Source) (time.Duration, backoff.State, bool) {
	panic("policy")
}

// TestPolicyPanics checks that a breaker can still be used after its policy has panicked.
func TestPolicyPanics(t *testing.T) {
	b := newBreaker(t, breaker.Options{Failures: 1, Wait: panicking{}})
	for range 2 {
		func() {
			defer func() {
				if p := recover(); p != "policy" {
					t.Errorf("recovered %v, want the panic of the policy", p)
				}
			}()
			_ = do(b, errDown)
		}()
	}
	if s := b.State(); s != breaker.Closed {
		t.Errorf("the breaker is %v, want closed", s)
	}
}
