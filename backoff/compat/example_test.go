package compat_test

import (
	"fmt"
	v1 "math/rand"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
)

// The waits of Flume while its channel is full.
func ExampleFlume() {
	for n, wait := range backoff.Delays(compat.FlumeDefaults(), nil) {
		if n == 6 {
			break
		}
		fmt.Print(wait.Milliseconds(), " ")
	}
	// Output: 250 500 1000 2000 4000 4000
}

// The article's run with rand.Seed(42), bit for bit.
func ExampleCounter() {
	b := &compat.Counter{
		Min: 100 * time.Millisecond, Max: 10 * time.Second, Factor: 2, Jitter: true,
		Rand: v1.New(v1.NewSource(42)),
	}
	fmt.Println(b.Duration(), b.Duration(), b.Duration())
	b.Reset()
	fmt.Println(b.Duration(), b.Duration(), b.Duration())
	// Output:
	// 100ms 106.600049ms 281.228155ms
	// 100ms 104.381845ms 214.957989ms
}

// If a server is on standby, the call fails over to another server, the first time without a wait.
func ExampleHadoopFailover() {
	policy := compat.HadoopFailover{MaxFailovers: 15, MaxRetries: 10, DelayMillis: 500,
		MaxDelayMillis: 15000}
	for _, text := range []string{"StandbyException", "SaslException", "SocketException"} {
		decision := policy.Decide(compat.HadoopFailure{Err: compat.ParseJavaError(text)}, nil)
		fmt.Printf("%s: %v after %v %q\n", text, decision.Action, decision.Delay, decision.Reason)
	}
	// Output:
	// StandbyException: failover after 0s ""
	// SaslException: fail after 0s "SASL failure"
	// SocketException: fail after 0s "the invoked method is not idempotent, and unable to determine whether it was invoked"
}

func ExampleHadoopMultipleLinearRandom() {
	policy := compat.ParseHadoopMultipleLinearRandom("10000,6,60000,10")
	count := 0
	for range backoff.Delays(policy, nil) {
		count++
	}
	fmt.Println(policy, count, "retries") // one more than configured
	// Output: MultipleLinearRandomRetry[6x10000ms, 10x60000ms] 17 retries
}

// The 10th failure in a row is retried at once.
func ExampleAkka() {
	for _, n := range []int{0, 8, 9, 10} {
		_, _, highest := backoff.Bounds(compat.AkkaDefaults(), n)
		fmt.Print(highest, " ")
	}
	// Output: 10ms 5.11s 0s 10ms
}

func ExamplePekko() {
	policy := compat.Pekko{Min: 3 * time.Second, Max: 30 * time.Second, RandomFactor: .2}
	low, _, high := backoff.Bounds(policy, 1)
	fmt.Println(low, high.Round(time.Millisecond))
	// Output: 6s 7.2s
}

func ExampleKubernetesItems() {
	items := compat.KubernetesItems[string]{
		Policy: compat.KubernetesExponentialDefaults(),
	}
	fmt.Println(items.When("a"), items.When("a"), items.When("b"), items.NumRequeues("a"))
	items.Forget("a")
	fmt.Println(items.When("a"))
	// Output:
	// 5ms 10ms 5ms 2
	// 5ms
}
