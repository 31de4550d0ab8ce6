// Command async-poll polls an HTTP server until a job is done. The server responds like real
// servers: not ready, too many requests with Retry-After, a server error, and finally the result.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

func main() {
	server := httptest.NewServer(jobs())
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	polls := 0
	report, err := retry.Poll(ctx, func(ctx context.Context) (string, error) {
		polls++
		text, status, err := get(ctx, server.URL+"/jobs/1")
		fmt.Printf("poll %d: %s\n", polls, status)
		return text, err
	}, retry.Options{
		// The textbook example waits 2^n * 100 ms up to a cap, without jitter. Here the unit is
		// shorter.
		Policy:         backoff.Exponential(time.Millisecond, 2, 20*time.Millisecond),
		MaxAttempts:    10,
		AttemptTimeout: 5 * time.Second,
	})
	fmt.Println(report, err)
}

// get polls once. It returns the text of the finished job and the status of the response.
func get(ctx context.Context, url string) (text, status string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", "", retry.Permanent(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted {
		return "", resp.Status, retry.ErrNotReady
	}
	if err := retry.HTTP(resp); err != nil { // 429 with the hint of Retry-After
		return "", resp.Status, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return strings.TrimSpace(string(body)), resp.Status, err
}

// jobs returns the handler of the server. The server has one job, which is done at the sixth poll.
func jobs() http.Handler {
	polls := 0
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		polls++
		switch polls {
		case 1, 2, 5:
			w.WriteHeader(http.StatusAccepted)
		case 3:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case 4:
			w.WriteHeader(http.StatusBadGateway)
		default:
			fmt.Fprintln(w, "report.pdf")
		}
	})
}
