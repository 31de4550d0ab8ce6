// Command async-poll starts a job at an HTTP server and polls until it is done. The server answers as servers do: not
// ready yet, too many requests with Retry-After, an error of its own, and in the end the result.
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
	report, err := retry.Poll(ctx, func(ctx context.Context) (string, retry.Verdict, error) {
		polls++
		text, verdict, err := ask(ctx, server.URL+"/jobs/1")
		fmt.Printf("poll %d: %v\n", polls, verdict)
		return text, verdict, err
	},
		// The textbook has 2^n * 100 ms up to a cap, without jitter; here in milliseconds, so that nobody has to wait.
		retry.Policy(backoff.Exponential(time.Millisecond, 2, 20*time.Millisecond)),
		retry.MaxPolls(10),
		retry.AttemptTimeout(5*time.Second),
	)
	fmt.Println(report, err)
}

// ask polls once and says what the answer means.
func ask(ctx context.Context, url string) (string, retry.Verdict, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", retry.Fatal, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", retry.ServerError, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", retry.ServerError, err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return strings.TrimSpace(string(body)), retry.Success, nil
	case resp.StatusCode == http.StatusAccepted:
		return "", retry.NotReady, nil
	case resp.StatusCode == http.StatusTooManyRequests:
		return "", retry.Throttled, retry.HTTP(resp) // with the hint of Retry-After
	case resp.StatusCode >= 500:
		return "", retry.ServerError, retry.HTTP(resp)
	}
	return "", retry.Fatal, retry.HTTP(resp)
}

// jobs is the server: its one job is done at the sixth question.
func jobs() http.Handler {
	asked := 0
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		switch asked {
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
