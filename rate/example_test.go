package rate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/rate"
)

func Example() {
	limiter, err := rate.New(rate.Options{Events: 100, Per: time.Second, Burst: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 4 {
		if err := limiter.Wait(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("event", i)
	}
	// Output:
	// event 0
	// event 1
	// event 2
	// event 3
}

// A limit for each user takes eight bytes a user.
func ExampleGCRA() {
	limit := rate.GCRA{Interval: time.Second, Burst: 2}
	states := map[string]time.Duration{}
	now := 10 * time.Second
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		next, wait := limit.Take(states[user], now, 1)
		states[user] = next
		fmt.Println(user, wait)
	}
	// Output:
	// ann 0s
	// ann 0s
	// ann 1s
	// bob 0s
}

func ExampleParseHeaders() {
	header := map[string][]string{"Ratelimit": {`"default";r=0;t=30`},
		"Ratelimit-Policy": {`"default";q=100;w=60`}}
	advice, ok := rate.ParseHeaders(header, time.Now())
	fmt.Println(advice.Remaining, "left for", advice.Reset, "of", advice.Limit, "a", advice.Window,
		ok)
	// Output: 0 left for 30s of 100 a 1m0s true
}
