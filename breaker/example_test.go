package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
)

func Example() {
	b, err := breaker.New(breaker.Options{Failures: 2, Wait: backoff.Fixed(time.Minute)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		err := b.Do(context.Background(), func(context.Context) error {
			return errors.New("connection refused")
		})
		if open, ok := errors.AsType[*breaker.OpenError](err); ok {
			fmt.Println("not called; again in", open.Wait.Round(time.Second))
			continue
		}
		fmt.Println(err)
	}
	// Output:
	// connection refused
	// connection refused
	// not called; again in 1m0s
}

// An application's own error can mean that the server is healthy.
func ExampleOptions_outcome() {
	errNotFound := errors.New("not found")
	b, err := breaker.New(breaker.Options{Outcome: func(err error) breaker.Outcome {
		if errors.Is(err, errNotFound) {
			return breaker.Success // the server is well
		}
		return breaker.OutcomeOf(err)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 10 {
		_ = b.Do(context.Background(), func(context.Context) error { return errNotFound })
	}
	fmt.Println(b.State())
	// Output: closed
}
