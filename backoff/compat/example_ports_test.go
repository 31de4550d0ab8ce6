package compat_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
)

// printBounds prints the lowest and the highest wait of some steps.
func printBounds(p backoff.Policy, steps ...int) {
	for _, n := range steps {
		low, _, high := backoff.Bounds(p, n)
		fmt.Printf("%d: %v to %v\n", n, low.Round(time.Millisecond), high.Round(time.Millisecond))
	}
}

// The legacy mode loses its jitter from the fifth attempt on.
func ExampleAWS() {
	printBounds(compat.AWSDefaults(), 0, 3, 4)
	// Output:
	// 0: 0s to 2s
	// 3: 0s to 16s
	// 4: 20s to 20s
}

// The jitter comes after the cap, so that waits exceed a maximum of a minute by up to half of it.
func ExampleCenkalti() {
	printBounds(compat.CenkaltiDefaults(), 0, 1, 20)
	// Output:
	// 0: 250ms to 750ms
	// 1: 375ms to 1.125s
	// 20: 30s to 1m30s
}

func ExampleCurator() {
	printBounds(compat.Curator{Base: 100 * time.Millisecond, MaxSleep: 5 * time.Second,
		MaxRetries: 10}, 0, 1, 9)
	// Output:
	// 0: 100ms to 100ms
	// 1: 100ms to 300ms
	// 9: 100ms to 5s
}

func ExampleGRPC() {
	printBounds(compat.GRPCDefaults(), 0, 1, 20)
	// Output:
	// 0: 1s to 1s
	// 1: 1.28s to 1.92s
	// 20: 1m36s to 2m24s
}

// According to the original's documentation, the sleep is multiplied by a factor in [0, 2^n). In
// fact, the factor is 0.5 to 1.5 times 2^(n+1).
func ExampleHadoopExponential() {
	policy := compat.HadoopExponential(3, 1000, compat.JavaMilliseconds)
	printBounds(policy, 0, 1, 2)
	fmt.Println(backoff.Validate(compat.HadoopExponential(63, 1000, compat.JavaMilliseconds)))
	// Output:
	// 0: 1s to 3s
	// 1: 2s to 6s
	// 2: 4s to 12s
	// maxRetries = 63 >= 63
}

// The exact class of a Java exception selects the policy.
func ExampleHadoopByException() {
	policy := compat.HadoopByException(compat.HadoopTryOnce(), map[string]compat.Hadoop{
		"ConnectException": compat.HadoopFixedCount(3, 2, compat.JavaSeconds),
	})
	for _, class := range []string{"ConnectException", "IOException"} {
		decision := policy.Decide(compat.HadoopFailure{Err: compat.ParseJavaError(class)}, nil)
		fmt.Println(class, decision.Action, decision.Delay)
	}
	// Output:
	// ConnectException retry 2s
	// IOException fail 0s
}

// The last sleep ends exactly at the time limit.
func ExampleJodis() {
	policy := compat.Jodis{Base: time.Second, MaxSleep: time.Minute, MaxElapsed: 10 * time.Second}
	wait, ok := policy.Decide(0, 9700*time.Millisecond, nil)
	fmt.Println(wait, ok)
	// Output: 300ms true
}

func ExampleJpillora() {
	policy := compat.Jpillora{Min: 100 * time.Millisecond, Max: time.Second}
	for n, wait := range backoff.Delays(policy, nil) {
		if n == 5 {
			break
		}
		fmt.Print(wait, " ")
	}
	// Output: 100ms 200ms 400ms 800ms 1s
}

// ExponentialBackoff ends when the interval reaches the cap, regardless of the steps that are left.
func ExampleKubernetesWait() {
	policy := compat.KubernetesWait{Duration: time.Second, Factor: 2, Steps: 10,
		Cap: 5 * time.Second}
	for _, wait := range backoff.Delays(policy.Loop(), nil) {
		fmt.Print(wait, " ")
	}
	fmt.Println("and wasted", policy.Loop().Wasted())
	// Output: 1s 2s and wasted 4s
}

func ExamplePolly() {
	policy := compat.Polly{Type: compat.PollyExponential, Delay: time.Second, MaxRetries: 3}
	for _, wait := range backoff.Delays(policy, nil) {
		fmt.Print(wait, " ")
	}
	// Output: 1s 2s 4s
}

// An interval of 1 ms times 1.5 never grows: each step is cut to whole milliseconds.
func ExampleResilience4j() {
	for _, initial := range []time.Duration{time.Millisecond, 500 * time.Millisecond} {
		policy := compat.Resilience4j{Initial: initial, Multiplier: 1.5}
		wait, err := policy.Delay(4, 0)
		fmt.Println(wait, err)
	}
	// Output:
	// 1ms <nil>
	// 1.687s <nil>
}

// The order of the wrappers matters. Here the cap is the inner wrapper, so that the jitter takes
// waits beyond the cap.
func ExampleSethvargo() {
	policy := compat.Sethvargo{
		Shape: compat.SethvargoExponential, Base: time.Second,
		Wrappers: []compat.SethvargoWrapper{compat.SethvargoCapped(3 * time.Second),
			compat.SethvargoJitter(time.Second)},
	}
	wait, _, _ := policy.Next(backoff.State{N: 7}, rand.NewPCG(1, 2))
	fmt.Println(wait > 3*time.Second)
	printBounds(policy, 7)
	// Output:
	// true
	// 7: 2s to 4s
}
