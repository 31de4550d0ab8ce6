package retry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// quick keeps the examples fast. Real policies wait longer.
var quick = backoff.Exponential(time.Microsecond, 2, time.Millisecond).Full()

func ExampleDo() {
	calls := 0
	err := retry.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("attempt", retry.FromContext(ctx).Number)
		if calls++; calls < 3 {
			return errors.New("connection refused")
		}
		return nil
	}, retry.Options{Policy: quick, MaxAttempts: 5})
	fmt.Println(err)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// <nil>
}

// The error holds the reason for the stop and the failures of the attempts.
func ExampleError() {
	refused := errors.New("connection refused")
	err := retry.Do(context.Background(), func(context.Context) error { return refused },
		retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 3})
	fmt.Println(err)
	fmt.Println(errors.Is(err, retry.ErrExhausted), errors.Is(err, refused))
	if e, ok := errors.AsType[*retry.Error](err); ok {
		fmt.Println(e.Attempts, "attempts,", len(e.Errs), "failures kept")
	}
	// Output:
	// connection refused (no attempts left, attempt 3)
	// true true
	// 3 attempts, 3 failures kept
}

func ExampleValue() {
	calls := 0
	balance, err := retry.Value(context.Background(), func(context.Context) (int, error) {
		if calls++; calls == 1 {
			return 0, errors.New("timeout")
		}
		return 42, nil
	}, retry.Options{Policy: quick})
	fmt.Println(balance, err)
	// Output: 42 <nil>
}

func ExampleLoop() {
	var loop retry.Loop
	for ctx := range loop.Attempts(context.Background(), retry.Options{Policy: quick}) {
		number := retry.FromContext(ctx).Number
		if number < 3 {
			loop.End(errors.New("not yet"))
			continue
		}
		fmt.Println("done in attempt", number)
		break
	}
	fmt.Println(loop.Err())
	// Output:
	// done in attempt 3
	// <nil>
}

// An asynchronous operation is polled until it has ended.
func ExamplePoll() {
	polls := 0
	result, err := retry.Poll(context.Background(), func(context.Context) (string, error) {
		if polls++; polls < 4 {
			return "", retry.ErrNotReady
		}
		return "report.pdf", nil
	}, retry.Options{Policy: quick, MaxAttempts: 10})
	fmt.Println(result, err, "after", polls, "polls")
	// Output: report.pdf <nil> after 4 polls
}

// The second attempt starts if the first is slow. The first success counts.
func ExampleHedge() {
	v, err := retry.Hedge(context.Background(), func(ctx context.Context) (string, error) {
		number := retry.FromContext(ctx).Number
		if number == 1 {
			<-ctx.Done() // this replica hangs
			return "", ctx.Err()
		}
		return fmt.Sprintf("result of attempt %d", number), nil
	}, retry.HedgeOptions{Delay: time.Millisecond}, nil)
	fmt.Println(v, err)
	// Output: result of attempt 2 <nil>
}

func ExampleFallback() {
	price, err := retry.Fallback(context.Background(),
		func(context.Context) (string, error) { return "", errors.New("exchange is down") },
		func(_ context.Context, cause error) (string, error) { return "yesterday's price", nil },
		retry.Options{Policy: quick, MaxAttempts: 3})
	fmt.Println(price, err)
	// Output: yesterday's price <nil>
}

// Options.Classify decides about some failures. The function Classify decides about the others, for
// which Options.Classify returns Undecided.
func ExampleOptions_classify() {
	locked, gone := errors.New("account is locked"), errors.New("replica is gone")
	visited := []int{}
	err := retry.Do(context.Background(), func(ctx context.Context) error {
		target := retry.FromContext(ctx).Target
		visited = append(visited, target)
		if target == 0 {
			return fmt.Errorf("replica %d: %w", target, gone)
		}
		return fmt.Errorf("replica %d: %w", target, locked)
	}, retry.Options{
		Policy:  quick,
		Targets: 2,
		Classify: func(err error) retry.Action {
			switch {
			case errors.Is(err, gone):
				return retry.Failover
			case errors.Is(err, locked):
				return retry.Fail
			}
			return retry.Undecided
		},
	})
	fmt.Println(visited, err)
	// Output: [0 1] replica 1: account is locked (not retryable, attempt 2)
}

func ExamplePermanent() {
	err := retry.Do(context.Background(), func(context.Context) error {
		return fmt.Errorf("pay: %w", retry.Permanent(errors.New("card is stolen")))
	})
	fmt.Println(err)
	// Output: pay: card is stolen (not retryable, attempt 1)
}

// A server's hint is followed, and never shortened.
func ExampleAfter() {
	begun, calls := time.Now(), 0
	err := retry.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return retry.After(20*time.Millisecond, errors.New("busy"))
		}
		return nil
	}, retry.Options{Policy: backoff.Fixed(0)})
	fmt.Println(err, time.Since(begun) >= 20*time.Millisecond)
	// Output: <nil> true
}

// One budget for all calls to a service keeps the retries of a thousand callers from becoming a
// storm.
func ExampleBudget() {
	budget := retry.TokenBucket(50, 5, 1)
	attempts := 0
	for range 1000 {
		_ = retry.Do(context.Background(), func(context.Context) error {
			attempts++
			return errors.New("down")
		}, retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 3, Budget: budget})
	}
	fmt.Println(attempts, "attempts for 1000 calls")
	// Output: 1010 attempts for 1000 calls
}

func ExampleTransport() {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	client := http.Client{
		Transport: &retry.Transport{
			Options: retry.Options{Policy: backoff.Fixed(time.Millisecond)}}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", requests, "requests")
	// Output: 200 OK after 3 requests
}

// One Options value serves all calls to a service.
func ExampleOptions() {
	database := retry.Options{
		Policy:         backoff.Exponential(time.Microsecond, 2, time.Second).Full(),
		MaxAttempts:    5,
		AttemptTimeout: time.Second,
		MaxElapsed:     10 * time.Second,
		OnEvent: func(_ context.Context, e retry.Event) {
			if e.Kind == retry.AttemptFailed {
				fmt.Println("attempt", e.Attempt.Number, "failed:", e.Err)
			}
		},
	}
	calls := 0
	err := retry.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("deadlock")
		}
		return nil
	}, database)
	fmt.Println(err)
	// Output:
	// attempt 1 failed: deadlock
	// <nil>
}
