package compare

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/penstock-io/penstock/httpclient"
	"github.com/penstock-io/penstock/retry"
)

// oursGet returns a client with timeouts, retries, a breaker, hedging, a concurrency limit and a
// fallback.
func oursGet() (*http.Client, error) {
	return httpclient.New(httpclient.Options{
		Timeout:  30 * time.Second,
		Retry:    retry.Options{AttemptTimeout: 2 * time.Second},
		Hedge:    retry.HedgeOptions{Delay: 200 * time.Millisecond},
		Fallback: func(req *http.Request, _ error) (*http.Response, error) { return cached(req) },
	})
}

// theirsGet returns a client with the same features as that of oursGet, made with failsafe-go. It
// has one breaker and one limiter for all hosts. The client of oursGet has a breaker and a limiter
// for each host.
func theirsGet() (*http.Client, error) {
	serverError := func(resp *http.Response, err error) bool {
		return err != nil || resp.StatusCode >= http.StatusInternalServerError
	}
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: failsafehttp.NewRoundTripper(nil,
			fallback.NewBuilderWithFunc(func(e failsafe.Execution[*http.Response]) (*http.Response,
				error) {
				return cached(nil)
			}).HandleIf(serverError).Build(),
			failsafehttp.NewRetryPolicyBuilder().WithBackoff(100*time.Millisecond,
				30*time.Second).Build(),
			circuitbreaker.NewBuilder[*http.Response]().HandleIf(serverError).WithFailureThreshold(
				5).Build(),
			hedgepolicy.NewWithDelay[*http.Response](200*time.Millisecond),
			adaptivelimiter.NewWithDefaults[*http.Response](),
			timeout.New[*http.Response](2*time.Second)),
	}, nil
}
