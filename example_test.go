package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/supervise"
)

// A backoff policy computes waits. It never sleeps.
func Example_backoff() {
	policy := backoff.Exponential(100*time.Millisecond, 2, time.Second)
	var state backoff.State
	for range 5 {
		wait, next, _ := policy.Next(state, nil)
		fmt.Print(wait, " ")
		state = next
	}
	// Output: 100ms 200ms 400ms 800ms 1s
}

// Package retry repeats an operation until it succeeds or is not worth another attempt.
func Example_retry() {
	calls := 0
	err := retry.Do(context.Background(), func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("connection refused")
		}
		return nil
	}, retry.Options{Policy: backoff.Fixed(time.Millisecond)})
	fmt.Println(calls, err)
	// Output: 3 <nil>
}

// A limiter bounds the calls in flight. It derives the bound from their round trips.
func Example_limit() {
	limiter, err := limit.New(limit.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := limiter.Acquire(context.Background())
	if err != nil {
		fmt.Println(err) // refused: the queue is full or the deadline too soon
		return
	}
	rows, err := query(context.Background())
	permit.Done(limit.OutcomeOf(err))
	fmt.Println(rows, err)
	// Output: 42 rows <nil>
}

// query represents a call to a server.
func query(context.Context) (string, error) { return "42 rows", nil }

// A breaker refuses calls to a server that fails.
func Example_breaker() {
	b, err := breaker.New(breaker.Options{Failures: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := 0
	for range 5 {
		_ = b.Do(context.Background(), func(context.Context) error {
			calls++
			return errors.New("connection refused")
		})
	}
	fmt.Println(calls, b.State())
	// Output: 2 open
}

// A rate limiter spreads events over time.
func Example_rate() {
	limiter, err := rate.New(rate.Options{Events: 100, Per: time.Second, Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Print(limiter.Allow(), " ")
	}
	// Output: true true true false
}

// A supervisor restarts the goroutines that fail.
func Example_supervise() {
	starts := 0
	job := supervise.Child{Name: "import", Restart: supervise.Transient, Significant: true,
		Run: func(context.Context) error {
			if starts++; starts < 3 {
				return errors.New("connection reset")
			}
			return nil
		}}
	tree, err := supervise.New("shop", supervise.Spec{Backoff: backoff.Fixed(time.Millisecond)},
		job)
	if err == nil {
		err = tree.Serve(context.Background())
	}
	fmt.Println(starts, err)
	// Output: 3 <nil>
}

// A sender delivers items to unequal workers. Each worker has a window of its own, which adapts to
// its speed.
func Example_flow() {
	worker := flow.WorkerFunc[int](func(context.Context, flow.Attempt[int]) (flow.Report, error) {
		return flow.Report{}, nil
	})
	delivered := 0
	sender, err := flow.New(flow.Options[int]{
		Lanes:   []flow.Lane[int]{{Name: "a", Worker: worker}, {Name: "b", Worker: worker}},
		Settled: func(flow.Item[int], flow.Settlement) { delivered++ },
	})
	next := 0
	if err == nil {
		err = sender.Run(context.Background(),
			flow.ProducerFunc[int](func(context.Context) (flow.Item[int], error) {
				if next++; next > 100 {
					return flow.Item[int]{}, io.EOF
				}
				return flow.Item[int]{Value: next}, nil
			}))
	}
	fmt.Println(delivered, err)
	// Output: 100 <nil>
}

// A file keeps its identity while it grows and when it is renamed. A new file has another identity,
// even if it has the name and the inode of an earlier one.
func Example_fileid() {
	first := fileid.File{Dev: 1, Ino: 7, Birth: 1000, Size: 5, Head: []byte("hello")}
	id := fileid.New(first, nil)

	grown := first
	grown.Size, grown.Head = 11, []byte("hello world")
	replaced := fileid.File{Dev: 1, Ino: 7, Birth: 2000, Size: 5, Head: []byte("other")}
	fmt.Println(id.Match(grown), id.Match(replaced))
	// Output: true false
}
