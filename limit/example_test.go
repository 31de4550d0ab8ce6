package limit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/limit"
)

func Example() {
	limiter, err := limit.New(limit.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	query := func(context.Context) (string, error) { return "42 rows", nil }

	permit, err := limiter.Acquire(context.Background())
	if err != nil {
		fmt.Println(err) // refused, or the context ended
		return
	}
	answer, err := query(context.Background())
	permit.Done(limit.OutcomeOf(err))

	fmt.Println(answer, err)
	// Output: 42 rows <nil>
}

// A bulkhead: at most two calls at once, and callers beyond them are refused.
func ExampleFixed() {
	bulkhead := limit.Fixed(2)
	for i := range 3 {
		_, ok := bulkhead.TryAcquire()
		fmt.Println(i, ok)
	}
	// Output:
	// 0 true
	// 1 true
	// 2 false
}

// The server is shared with clients that do not limit themselves. Callers fail rather than wait for
// more than a second.
func ExampleNew() {
	_, err := limit.New(limit.Options{Window: window.AIMD{Max: 200}, MaxWait: time.Second,
		MaxWaiting: 50})
	fmt.Println(err)
	// Output: <nil>
}
