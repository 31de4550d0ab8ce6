package backoff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// A policy computes waits. The state is the caller's position in the sequence. The caller does the
// waiting, or uses package retry.
func Example() {
	policy := backoff.Exponential(100*time.Millisecond, 2, 10*time.Second).Full()
	source := rand.NewPCG(1, 2) // nil means the runtime's source

	var state backoff.State
	for range 3 {
		wait, next, ok := policy.Next(state, source)
		if !ok {
			break // the policy gives up
		}
		fmt.Println(wait.Round(time.Millisecond))
		state = next
	}
	fmt.Println("waited", state.N, "times")
	// Output:
	// 77ms
	// 123ms
	// 314ms
	// waited 3 times
}

func ExampleFixed() {
	printWaits(backoff.Fixed(time.Second), 3)
	// Output: 1s 1s 1s
}

func ExampleRandom() {
	low, mean, high := backoff.Bounds(backoff.Random(time.Second), 0)
	fmt.Println(low, mean, high)
	// Output: 0s 499.999999ms 999.999999ms
}

func ExampleLinear() {
	printWaits(backoff.Linear(time.Second, 2*time.Second, 6*time.Second), 5)
	// Output: 1s 3s 5s 6s 6s
}

func ExampleExponential() {
	printWaits(backoff.Exponential(10*time.Millisecond, 2, 0), 8)
	// Output: 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1.28s
}

func ExamplePolynomial() {
	printWaits(backoff.Polynomial(10*time.Millisecond, 2, time.Second), 5)
	// Output: 10ms 40ms 90ms 160ms 250ms
}

func ExampleFibonacci() {
	printWaits(backoff.Fibonacci(10*time.Millisecond, 0), 8)
	// Output: 0s 10ms 10ms 20ms 30ms 50ms 80ms 130ms
}

// The schedule of a payment notification: the policy gives up after the last wait.
func ExampleTable() {
	const s, m, h = time.Second, time.Minute, time.Hour
	schedule := backoff.Table(15*s, 15*s, 30*s, 3*m, 10*m, 20*m, 30*m, 30*m, 30*m, 60*m, 3*h, 3*h,
		3*h, 6*h, 6*h)
	var total time.Duration
	count := 0
	for _, wait := range backoff.Delays(schedule, nil) {
		total += wait
		count++
	}
	fmt.Println(count, "waits in", total)
	// Output: 15 waits in 24h4m0s
}

func ExamplePattern() {
	printWaits(backoff.Pattern(backoff.Point{From: 2, Delay: time.Second},
		backoff.Point{From: 4, Delay: 5 * time.Second}), 6)
	// Output: 0s 0s 1s 1s 5s 5s
}

// Ethernet: 16 transmissions of a frame, 15 waits, at most 366.13 ms in all.
func ExampleSlotted() {
	ethernet := backoff.Slotted(51200*time.Nanosecond, 10, 16)
	var worst time.Duration
	for n := range backoff.Delays(ethernet, nil) {
		_, _, highest := ethernet.Bounds(n)
		worst += highest
	}
	fmt.Println(worst)
	// Output: 366.1312ms
}

func ExampleDecorrelated() {
	for n := range 4 {
		low, _, high := backoff.Bounds(backoff.Decorrelated(time.Second, 20*time.Second), n)
		fmt.Println(low, "to", high)
	}
	// Output:
	// 1s to 3s
	// 1s to 9s
	// 1s to 20s
	// 1s to 20s
}

func ExampleDecorrelatedV2() {
	for n := range 4 {
		_, mean, _ := backoff.Bounds(backoff.DecorrelatedV2(time.Second, 0), n)
		fmt.Println(mean.Round(10 * time.Millisecond))
	}
	// Output:
	// 870ms
	// 1.16s
	// 2.08s
	// 4.13s
}

// Against contention, the interval is a multiple of the latency of one attempt.
func ExampleRecommended() {
	policy := backoff.Recommended(40*time.Millisecond, 2*time.Second)
	for n := range 4 {
		low, mean, high := backoff.Bounds(policy, n)
		fmt.Println(low, mean, high)
	}
	// Output:
	// 0s 40ms 80ms
	// 0s 90ms 180ms
	// 0s 160ms 320ms
	// 0s 250ms 500ms
}

// The range of a draw is cut to the cap: no wait is above the cap, and waits do not pile up on it.
func ExampleLadder() {
	ladder := backoff.Exponential(time.Second, 2, 8*time.Second)
	for _, policy := range []backoff.Ladder{ladder, ladder.Full(), ladder.Equal(),
		ladder.Proportional(.25), ladder.Additive(.25)} {
		low, _, high := backoff.Bounds(policy, 10)
		fmt.Println(policy, "waits", low, "to", high)
	}
	// Output:
	// exponential base=1s factor=2 max=8s waits 8s to 8s
	// exponential base=1s factor=2 max=8s jitter=full waits 0s to 8s
	// exponential base=1s factor=2 max=8s jitter=equal waits 4s to 8s
	// exponential base=1s factor=2 max=8s jitter=proportional width=0.25 waits 6s to 8s
	// exponential base=1s factor=2 max=8s jitter=additive width=0.25 waits 6.4s to 8s
}

func ExampleLimit() {
	// Three attempts have two waits between them.
	printWaits(backoff.Limit(backoff.Fixed(time.Second), 3), 9)
	// Output: 1s 1s
}

func ExampleThen() {
	printWaits(backoff.Then(backoff.Fixed(100*time.Millisecond), 3,
		backoff.Exponential(time.Second, 2, time.Minute)), 6)
	// Output: 100ms 100ms 100ms 1s 2s 4s
}

func ExampleMax() {
	printWaits(backoff.Max(backoff.Fixed(3*time.Second),
		backoff.Linear(time.Second, time.Second, 0)), 5)
	// Output: 3s 3s 3s 4s 5s
}

func ExampleSum() {
	policy := backoff.Sum(backoff.Fixed(time.Second), backoff.Random(500*time.Millisecond))
	low, _, high := backoff.Bounds(policy, 0)
	fmt.Println(low, high)
	// Output: 1s 1.499999999s
}

func ExampleFirstNow() {
	printWaits(backoff.FirstNow(backoff.Exponential(time.Second, 2, time.Minute)), 4)
	// Output: 0s 1s 2s 4s
}

func ExampleDelays() {
	for n, wait := range backoff.Delays(backoff.Limit(backoff.Exponential(time.Second, 2,
		time.Minute), 4), nil) {
		fmt.Println(n, wait)
	}
	// Output:
	// 0 1s
	// 1 2s
	// 2 4s
}

// How long can ten attempts take at worst, and on average?
func ExampleBounds() {
	policy := backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Full()
	var average, worst time.Duration
	for n := range 9 {
		_, mean, highest := backoff.Bounds(policy, n)
		average, worst = average+mean, worst+highest
	}
	fmt.Println(average, worst)
	// Output: 25.55s 51.1s
}

func ExampleParse() {
	policy, err := backoff.Parse("exponential base=250ms max=30s jitter=full attempts=10")
	fmt.Println(policy, err)

	_, err = backoff.Parse("exponential base=1m max=30s")
	fmt.Println(err)
	// Output:
	// exponential base=250ms factor=2 max=30s jitter=full attempts=10 <nil>
	// backoff "exponential base=1m max=30s": max 30s is below base 1m0s
}

func ExampleValidate() {
	fmt.Println(backoff.Validate(backoff.Exponential(time.Second, .5, time.Minute)))
	// Output: factor 0.5: want 1 or more, and finite
}

// The state is small and can be stored with a message, so that the sequence continues after a
// restart.
func ExampleState() {
	policy := backoff.Exponential(time.Second, 2, time.Minute)
	_, state, _ := policy.Next(backoff.State{}, nil)
	stored, _ := json.Marshal(state)
	fmt.Println(string(stored))

	var restored backoff.State
	_ = json.Unmarshal(stored, &restored)
	wait, _, _ := policy.Next(restored, nil)
	fmt.Println(wait)
	// Output:
	// {"N":1,"Step":0,"Prev":1000000000,"Slept":1000000000}
	// 2s
}

// An app polls more rarely while its data goes unused.
func ExampleAdaptive() {
	pace := backoff.Adaptive{Min: time.Minute, Max: time.Hour, Grow: 2}
	interval := time.Duration(0)
	for _, used := range []bool{false, false, false, true, false} {
		interval = pace.Next(interval, used)
		fmt.Print(interval, " ")
	}
	// Output: 1m0s 2m0s 4m0s 1m0s 2m0s
}

// printWaits prints the first n waits of a policy.
func printWaits(p backoff.Policy, n int) {
	for i, wait := range backoff.Delays(p, rand.NewPCG(1, 2)) {
		if i == n {
			break
		}
		fmt.Print(wait, " ")
	}
}
