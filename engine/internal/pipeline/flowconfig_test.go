package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
)

// TestRetryPolicy checks that a route's policy is retry.policy, if that is set. Otherwise the
// policy is made from the other keys of retry.
func TestRetryPolicy(t *testing.T) {
	for _, c := range []struct {
		retry config.Retry
		want  string
	}{
		{config.Retry{Backoff: "pekko min=1s max=9s", Base: time.Second}, "pekko min=1s max=9s"},
		{config.Retry{Backoff: "fibonacci unit=10ms max=1m0s"}, "fibonacci unit=10ms max=1m0s"},
		{config.Retry{Backoff: "fixed", Base: time.Second}, "fixed delay=1s"},
		{config.Retry{Base: time.Second, Max: time.Minute, Jitter: "none"}, "exponential base=1s factor=2 max=1m0s"},
		{config.Retry{Base: time.Second, Max: time.Minute, Jitter: "full"}, "exponential base=1s " +
			"factor=2 max=1m0s jitter=full"},
	} {
		if p, err := c.retry.RetryPolicy(); err != nil || fmt.Sprint(p) != c.want {
			t.Errorf("%+v: %v, %v; want %s", c.retry, p, err, c.want)
		}
	}
}
