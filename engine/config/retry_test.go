package config

import (
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/backoff/compat"
)

// TestRetryBackoff checks the policy that results from each form of retry.backoff, and from the
// former name of this key, retry.policy.
func TestRetryBackoff(t *testing.T) {
	for retry, want := range map[string]string{
		"{}":                         "exponential base=250ms factor=2 max=30s jitter=full",
		"{backoff: fixed}":           "fixed delay=250ms",
		"{backoff: fixed, base: 5s}": "fixed delay=5s",
		"{backoff: exponential, base: 1s, jitter: none}": "exponential base=1s factor=2 max=30s",
		"{backoff: {table: [15s, 15s, 30s, 3m]}}":        "table delays=15s,15s,30s,3m0s",
		"{backoff: pekko min=1s max=9s}":                 "pekko min=1s max=9s",
		"{policy: pekko min=1s max=9s}":                  "pekko min=1s max=9s",
		"{policy: {table: [1s]}}":                        "table delays=1s",
	} {
		f, _ := mustLoad(t, fmt.Sprintf(`
pipelines:
  a:
    source: {spool_dir: {path: in}}
    sink: drop
    retry: %s
`, retry))
		p, err := f.Pipelines[0].Routes[0].Retry.RetryPolicy()
		if err != nil {
			t.Errorf("%s: %v", retry, err)
			continue
		}
		expected, err := compat.Parse(want)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(p) != fmt.Sprint(expected) {
			t.Errorf("%s gives %v, want %v", retry, p, expected)
		}
	}
}

// TestRetryTakesEveryPolicy checks that retry.backoff accepts every policy that `penstock backoff`
// lists.
func TestRetryTakesEveryPolicy(t *testing.T) {
	for _, spec := range compat.Specs() {
		f, _ := mustLoad(t, fmt.Sprintf(`
pipelines:
  a:
    source: {spool_dir: {path: in}}
    sink: drop
    retry: {backoff: %q}
`, spec))
		if p, err := f.Pipelines[0].Routes[0].Retry.RetryPolicy(); err != nil {
			t.Errorf("%s: %v, %v", spec, p, err)
		}
	}
}
