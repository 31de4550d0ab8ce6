package httpclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/httpclient"
	"github.com/penstock-io/penstock/retry"
)

// The server fails once. One expression sets timeout, retry, breaker, hedge, rate and concurrency
// limit.
func Example() {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client, err := httpclient.New(httpclient.Options{
		Timeout: 30 * time.Second,
		Retry: retry.Options{AttemptTimeout: 5 * time.Second,
			Policy: backoff.Fixed(time.Millisecond)},
		Hedge: retry.HedgeOptions{Delay: time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", calls.Load(), "requests")
	// Output: 200 OK after 2 requests
}
