// Command hadoop-policies prints the waits of Hadoop's RetryPolicies, ported in backoff/compat.
// Then it imitates, with package retry, a Hadoop client with two name nodes, of which at most one
// is active. The next step of the client depends on the kind of the error:
//
//   - A node in standby: try the other node at once (failover). If that node has failed as well,
//     wait first.
//   - Safe mode: wait, and try the same node again.
//   - A denied permission: give up.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
	"github.com/penstock-io/penstock/retry"
)

func main() {
	milliseconds, err := compat.ParseJavaUnit("MILLISECONDS")
	if err != nil {
		fmt.Println(err)
		return
	}
	show("RETRY_FOREVER", compat.HadoopForever())
	show("TRY_ONCE_THEN_FAIL", compat.HadoopTryOnce())
	show("retryUpToMaximumCountWithFixedSleep(3, 1 s)",
		compat.HadoopFixedCount(3, 1000, milliseconds))
	show("retryUpToMaximumTimeWithFixedSleep(5 s, 1 s)",
		compat.HadoopFixedTime(5000, 1000, milliseconds))
	show("retryUpToMaximumCountWithProportionalSleep(4, 1 s)",
		compat.HadoopProportional(4, 1000, milliseconds))
	show("exponentialBackoffRetry(5, 1 s)", compat.HadoopExponential(5, 1000, milliseconds))
	show(`MultipleLinearRandomRetry("1000,2,60000,1")`,
		*compat.ParseHadoopMultipleLinearRandom("1000,2,60000,1"))
	fmt.Println()
	nodes()
}

// show prints the first waits of a policy.
func show(name string, p backoff.Policy) {
	var waits []string
	for n, d := range backoff.Delays(p, rand.NewPCG(1, 2)) {
		if n == 6 {
			waits = append(waits, "...")
			break
		}
		waits = append(waits, d.String())
	}
	if len(waits) == 0 {
		waits = []string{"no retry"}
	}
	fmt.Printf("%s: %s\n", name, strings.Join(waits, " "))
}

var (
	errStandby  = errors.New("operation is not supported in state standby")
	errSafeMode = errors.New("name node is in safe mode")
	errDenied   = errors.New("permission denied")
)

// nodes imitates a client of two name nodes, and prints its failed attempts. Both nodes are in
// standby at first. Then node 0 becomes active.
func nodes() {
	responses := map[int][]error{0: {errStandby, errSafeMode, nil}, 1: {errStandby}}
	client := retry.Options{
		// Hadoop multiplies each wait by a random factor from 0.5 to 1.5.
		Policy:  backoff.Exponential(time.Millisecond, 2, 10*time.Millisecond).Proportional(.5),
		Targets: 2,
		Classify: func(err error) retry.Action {
			switch {
			case errors.Is(err, errStandby):
				return retry.Failover
			case errors.Is(err, errDenied):
				return retry.Fail
			}
			return retry.Retry
		},
		OnEvent: func(_ context.Context, e retry.Event) {
			if e.Kind == retry.AttemptFailed {
				fmt.Printf("attempt %d at node %d: %v: %v, wait: %v\n", e.Attempt.Number,
					e.Attempt.Target, e.Err, e.Action, e.Wait > 0)
			}
		},
	}
	err := retry.Do(context.Background(), func(ctx context.Context) error {
		node := retry.FromContext(ctx).Target
		response := responses[node][0]
		responses[node] = responses[node][1:]
		return response
	}, client)
	fmt.Println("written:", err)
}
