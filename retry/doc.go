// Package retry runs an operation again until it succeeds or until another attempt makes no sense.
//
//	err := retry.Do(ctx, func(ctx context.Context) error {
//		return publish(ctx, message)
//	})
//
// This call makes at most 10 attempts, with exponential backoff and full jitter between them.
// [Options] change that, and [Value] returns a result:
//
//	user, err := retry.Value(ctx, load, retry.Options{MaxAttempts: 4, AttemptTimeout: time.Second})
//
// The error of an operation decides whether and when the next attempt follows. [Permanent] stops
// the retry, and [After] demands a longer wait. If the error is not marked by Permanent, [Classify]
// decides whether to retry: it knows HTTP statuses and permanent network failures.
//
// # HTTP
//
// [Transport] retries inside an http.Client. It handles Retry-After, request bodies, timeouts that
// include the response body, and keys for requests that are not idempotent:
//
//	transport := &retry.Transport{Options: retry.Options{MaxElapsed: time.Minute}}
//	client := http.Client{Transport: transport}
//
// Without a Transport, an operation returns [HTTP](resp), which turns a failing status into an
// error.
//
// # Polling
//
// [Poll] calls a function until a long operation elsewhere has ended. The function returns
// [ErrNotReady] while the operation runs. This error does not count as a failure.
//
//	report, err := retry.Poll(ctx, probe, retry.Options{
//		Policy: backoff.Fixed(time.Second), MaxElapsed: time.Hour,
//	})
//
// # Hedging
//
// [Hedge] starts a second attempt while a slow one is still running, and takes the first success.
// [Fallback] calls an alternative if the retry fails.
//
//	resp, err := retry.Hedge(ctx, get, retry.HedgeOptions{Delay: 80 * time.Millisecond}, nil)
//
// [HedgeTransport] hedges inside an http.Client. Package httpclient combines it with retries,
// limits and circuit breakers.
//
// # Budgets
//
// A [Budget] shared by all calls to a service prevents a storm of retries. It is a [TokenBucket],
// [Ratio], [InFlight] or [Throttle], or a circuit breaker or rate limiter with the methods of
// Budget.
//
//	var budget = retry.TokenBucket(500, 5, 1)
//	err := retry.Do(ctx, call, retry.Options{Budget: budget})
//
// # Terms
//
// An attempt is one run of the operation, including the first. A retry is an attempt after the
// first. Limits count attempts, so MaxAttempts: 3 allows three runs with two waits between them. A
// hint is a wait that the service asked for.
//
// # Loops
//
// [Loop] makes the attempts in a range statement instead of a function.
//
// # Contexts
//
// The operation is not called with a context that has ended, except by [Hedge]. A wait that would
// outlive the caller's deadline is not begun. [FromContext] reads the attempt's number, target and
// key from the context. A nested retry makes all its attempts in each outer attempt, unless the
// outer retry sets SuppressNested.
//
// # Cost and tests
//
// If the first attempt of [Do], [Value] or [Loop] without options succeeds, nothing is allocated
// and no clock is read, unless the call is nested in another attempt. Each further attempt
// allocates its context. No goroutine is started except by [Hedge], whose attempts run in parallel.
//
// Everything runs under testing/synctest: waits use timers of package time, and budgets read its
// clock. So a test in a bubble can check the exact times of attempts without waiting.
package retry
