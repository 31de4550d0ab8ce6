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

// quick keeps the examples fast; a real policy waits longer.
var quick = retry.Policy(backoff.Exponential(time.Microsecond, 2, time.Millisecond).Full())

func ExampleDo() {
	calls := 0
	err := retry.Do(context.Background(), func(ctx context.Context) error {
		a, _ := retry.FromContext(ctx)
		fmt.Println("attempt", a.Number)
		if calls++; calls < 3 {
			return errors.New("connection refused")
		}
		return nil
	}, quick, retry.MaxAttempts(5))
	fmt.Println(err)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// <nil>
}

// The error tells why there was no further attempt, and holds what the attempts returned.
func ExampleError() {
	refused := errors.New("connection refused")
	err := retry.Do(context.Background(), func(context.Context) error { return refused },
		retry.Policy(backoff.Fixed(0)), retry.MaxAttempts(3))
	fmt.Println(err)
	fmt.Println(errors.Is(err, retry.ErrExhausted), errors.Is(err, refused))
	if e, ok := errors.AsType[*retry.Error](err); ok {
		fmt.Println(e.Attempts, "attempts,", len(e.Errs), "failures kept")
	}
	// Output:
	// retry: attempts exhausted after 3 attempts: connection refused
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
	}, quick)
	fmt.Println(balance, err)
	// Output: 42 <nil>
}

func ExampleLoop() {
	loop := retry.NewLoop(context.Background(), quick)
	for a := range loop.Attempts() {
		if a.Number() < 3 {
			a.End(errors.New("not yet"))
			continue
		}
		fmt.Println("done in attempt", a.Number())
		a.End(nil)
	}
	fmt.Println(loop.Err())
	// Output:
	// done in attempt 3
	// <nil>
}

// An asynchronous operation is asked about until it has ended.
func ExamplePoll() {
	answers := []retry.Verdict{retry.NotReady, retry.Throttled, retry.ServerError, retry.Success}
	asked := 0
	result, err := retry.Poll(context.Background(), func(context.Context) (string, retry.Verdict, error) {
		asked++
		return "report.pdf", answers[asked-1], nil
	}, quick, retry.MaxPolls(10))
	fmt.Println(result, err, "after", asked, "polls")
	// Output: report.pdf <nil> after 4 polls
}

// The second attempt begins when the first has not answered in time; the first good answer wins.
func ExampleHedge() {
	v, err := retry.Hedge(context.Background(), func(ctx context.Context) (string, error) {
		a, _ := retry.FromContext(ctx)
		if a.Number == 1 {
			<-ctx.Done() // this replica hangs
			return "", ctx.Err()
		}
		return fmt.Sprintf("answer of attempt %d", a.Number), nil
	}, retry.HedgePolicy{Delay: time.Millisecond}, nil)
	fmt.Println(v, err)
	// Output: answer of attempt 2 <nil>
}

func ExampleFallback() {
	price, err := retry.Fallback(context.Background(),
		func(context.Context) (string, error) { return "", errors.New("exchange is down") },
		func(_ context.Context, cause error) (string, error) { return "yesterday's price", nil },
		quick, retry.MaxAttempts(3))
	fmt.Println(price, err)
	// Output: yesterday's price <nil>
}

// Failures are told apart by errors.Is and errors.AsType, at any depth.
func ExampleClassify() {
	locked, gone := errors.New("account is locked"), errors.New("replica is gone")
	visited := []int{}
	err := retry.Do(context.Background(), func(ctx context.Context) error {
		a, _ := retry.FromContext(ctx)
		visited = append(visited, a.Target)
		if a.Target == 0 {
			return fmt.Errorf("replica %d: %w", a.Target, gone)
		}
		return fmt.Errorf("replica %d: %w", a.Target, locked)
	}, quick, retry.Targets(2), retry.Classify(
		retry.On(retry.Failover, gone),
		retry.On(retry.Fail, locked),
	))
	fmt.Println(visited, err)
	// Output: [0 1] retry: not worth another attempt after 2 attempts: replica 1: account is locked
}

func ExamplePermanent() {
	err := retry.Do(context.Background(), func(context.Context) error {
		return fmt.Errorf("pay: %w", retry.Permanent(errors.New("card is stolen")))
	})
	fmt.Println(err)
	// Output: retry: not worth another attempt after 1 attempt: pay: card is stolen
}

// A server's hint is followed, and never shortened.
func ExampleAfter() {
	begun, calls := time.Now(), 0
	err := retry.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return retry.After(20*time.Millisecond, errors.New("busy"))
		}
		return nil
	}, retry.Policy(backoff.Fixed(0)))
	fmt.Println(err, time.Since(begun) >= 20*time.Millisecond)
	// Output: <nil> true
}

// One budget for all calls to a service keeps the retries of a thousand callers from becoming a storm.
func ExampleBudget() {
	budget := retry.TokenBucket(50, 5, 1)
	attempts := 0
	for range 1000 {
		_ = retry.Do(context.Background(), func(context.Context) error {
			attempts++
			return errors.New("down")
		}, retry.Policy(backoff.Fixed(0)), retry.MaxAttempts(3), retry.Spend(budget))
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
	client := http.Client{Transport: &retry.Transport{Retrier: retry.Retrier{Policy: backoff.Fixed(time.Millisecond)}}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", requests, "requests")
	// Output: 200 OK after 3 requests
}

// A Retrier holds the settings of many calls.
func ExampleRetrier() {
	database := &retry.Retrier{
		Policy:         backoff.Exponential(time.Microsecond, 2, time.Second).Full(),
		MaxAttempts:    5,
		AttemptTimeout: time.Second,
		MaxElapsed:     10 * time.Second,
		OnEvent: func(e retry.Event) {
			if e.Kind == retry.AttemptFailed {
				fmt.Println("attempt", e.Attempt.Number, "failed:", e.Err)
			}
		},
	}
	calls := 0
	err := database.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("deadlock")
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// attempt 1 failed: deadlock
	// <nil>
}
