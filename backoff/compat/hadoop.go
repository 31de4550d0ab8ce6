//penstock:pure

package compat

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Hadoop is a RetryPolicy of hadoop-common 3.4. It decides by the failure, the number of retries,
// and the number of failovers to another server. Each Hadoop is also a backoff.Policy, with a Next
// that treats every failure as an IOException of an idempotent call (in [HadoopFailover], as a
// ConnectException).
//
// The following functions and types return or implement a Hadoop: [HadoopTryOnce], [HadoopForever],
// [HadoopFixedCount], [HadoopFixedForever], [HadoopFixedTime], [HadoopProportional],
// [HadoopExponential], [HadoopMultipleLinearRandom], [HadoopFailover], [HadoopByException],
// [HadoopByRemoteException], [HadoopOtherThanRemoteAndSASL]. [HadoopMultiple] joins the decisions
// of several failures.
type Hadoop interface {
	backoff.Policy
	backoff.Validator
	backoff.Bounder
	Decide(f HadoopFailure, src rand.Source) HadoopDecision
}

// HadoopFailure is the failure about which a policy decides.
type HadoopFailure struct {
	Err       JavaError
	Retries   int // earlier retries of the call, failovers included
	Failovers int // earlier failovers
	// Idempotent means that the call may be made twice, or that the server makes sure that it takes
	// effect at most once.
	Idempotent bool
}

// HadoopAction is the action after a failure.
type HadoopAction uint8

// The actions.
const (
	HadoopFail     HadoopAction = iota
	HadoopRetry                 // the same server, after Delay
	HadoopFailOver              // another server, after Delay
)

// String returns fail, retry or failover.
func (a HadoopAction) String() string { return name([]string{"fail", "retry", "failover"}, int(a)) }

// HadoopDecision is the decision of a policy. Reason is the original's text. A decision to retry
// may have a Reason, too.
type HadoopDecision struct {
	Action HadoopAction
	Delay  time.Duration
	Reason string
}

// HadoopMultiple joins the decisions for a call with several failures at the same time, as
// RetryInvocationHandler does. If all decisions are to fail, the call fails. If at least one
// decision is to fail over, the call fails over, by the first such decision. Otherwise the call is
// retried. The delay is the longest one.
func HadoopMultiple(decisions ...HadoopDecision) HadoopDecision {
	var all HadoopDecision
	for i, d := range decisions {
		if i == 0 || d.Action > all.Action {
			all.Action, all.Reason = d.Action, d.Reason
		}
		all.Delay = max(all.Delay, d.Delay)
	}
	if all.Action == HadoopFail {
		all.Delay = 0
	}
	return all
}

// JavaUnit is a java.util.concurrent.TimeUnit, as its length in nanoseconds.
type JavaUnit time.Duration

// The units.
const (
	JavaNanoseconds  JavaUnit = 1
	JavaMicroseconds          = JavaUnit(time.Microsecond)
	JavaMilliseconds          = JavaUnit(time.Millisecond)
	JavaSeconds               = JavaUnit(time.Second)
	JavaMinutes               = JavaUnit(time.Minute)
	JavaHours                 = JavaUnit(time.Hour)
	JavaDays                  = JavaUnit(24 * time.Hour)
)

// ParseJavaUnit reads the name of a unit: milliseconds, SECONDS, ...
func ParseJavaUnit(name string) (JavaUnit, error) {
	for unit, text := range javaUnits {
		if strings.EqualFold(text, name) {
			return unit, nil
		}
	}
	return 0, fmt.Errorf("unit %q: want nanoseconds, microseconds, milliseconds, seconds, "+
		"minutes, hours or days", name)
}

var javaUnits = map[JavaUnit]string{
	JavaNanoseconds: "NANOSECONDS", JavaMicroseconds: "MICROSECONDS",
	JavaMilliseconds: "MILLISECONDS",
	JavaSeconds:      "SECONDS", JavaMinutes: "MINUTES", JavaHours: "HOURS", JavaDays: "DAYS",
}

// String returns the name as Java writes it.
func (u JavaUnit) String() string {
	if text, ok := javaUnits[u]; ok {
		return text
	}
	return fmt.Sprintf("unknown unit of %d ns", int64(u))
}

// delay returns n units as a Duration of whole milliseconds, like Java's unit.toMillis(n). It drops
// fractions of a millisecond. Beyond an int64 it returns the nearest end of the range.
func (u JavaUnit) delay(n int64) time.Duration {
	if u < JavaMilliseconds {
		return millis(n / int64(JavaMilliseconds/max(u, 1)))
	}
	return scaled(n, time.Duration(u))
}

// HadoopSimple is TRY_ONCE_THEN_FAIL or RETRY_FOREVER. The zero value is TRY_ONCE_THEN_FAIL.
type HadoopSimple struct{ forever bool }

// HadoopTryOnce returns TRY_ONCE_THEN_FAIL, which never retries.
func HadoopTryOnce() HadoopSimple { return HadoopSimple{} }

// HadoopForever returns RETRY_FOREVER, which always retries.
//
// Quirk: it waits 0, a hot loop.
func HadoopForever() HadoopSimple { return HadoopSimple{true} }

// Decide implements Hadoop.
func (p HadoopSimple) Decide(HadoopFailure, rand.Source) HadoopDecision {
	if p.forever {
		return HadoopDecision{Action: HadoopRetry}
	}
	return HadoopDecision{Reason: "try once and fail."}
}

// Next implements backoff.Policy.
func (p HadoopSimple) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	return next(p, s, src)
}

// Bounds implements backoff.Bounder.
func (p HadoopSimple) Bounds(int) (lowest, mean, highest time.Duration) { return 0, 0, 0 }

// Validate implements backoff.Validator.
func (p HadoopSimple) Validate() error { return nil }

// next returns the decision of p for an IOException of an idempotent call after s.N retries.
func next(p Hadoop, s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil {
		return 0, s, false
	}
	f := HadoopFailure{Err: JavaError{Class: "IOException"}, Retries: count(s.N), Idempotent: true}
	d := p.Decide(f, src)
	if d.Action == HadoopFail {
		return 0, s, false
	}
	return d.Delay, s.After(d.Delay), true
}

// HadoopLimited is a RetryLimited: a number of retries and a rule for the delay.
type HadoopLimited struct {
	rule       hadoopRule
	maxRetries int64
	maxTime    int64 // maxTime of HadoopFixedTime, in unit
	sleep      int64 // the sleep, in unit
	unit       JavaUnit
	compat     bool
}

type hadoopRule uint8

const (
	hadoopFixed hadoopRule = iota
	hadoopFixedTime
	hadoopProportional
	hadoopExponential
)

// HadoopFixedCount is retryUpToMaximumCountWithFixedSleep. The delay is computed in the given unit
// and then truncated to whole milliseconds.
func HadoopFixedCount(maxRetries int, sleep int64, unit JavaUnit) HadoopLimited {
	return HadoopLimited{rule: hadoopFixed, maxRetries: int64(maxRetries), sleep: sleep, unit: unit}
}

// HadoopFixedForever is retryForeverWithFixedSleep: 2^31-1 retries.
func HadoopFixedForever(sleep int64, unit JavaUnit) HadoopLimited {
	return HadoopFixedCount(math.MaxInt32, sleep, unit)
}

// HadoopFixedTime is retryUpToMaximumTimeWithFixedSleep.
//
// Quirk: it measures no time. It allows (int)(maxTime / sleep) retries: with a maxTime of 10 and a
// sleep of 3, these are 3 retries.
func HadoopFixedTime(maxTime, sleep int64, unit JavaUnit) HadoopLimited {
	p := HadoopLimited{rule: hadoopFixedTime, maxTime: maxTime, sleep: sleep, unit: unit}
	if sleep != 0 {
		p.maxRetries = int64(int32(maxTime / sleep))
	}
	return p
}

// HadoopProportional is retryUpToMaximumCountWithProportionalSleep: sleep * (retries + 1).
//
// Quirk: a product above the largest int64 wraps (Compat only).
func HadoopProportional(maxRetries int, sleep int64, unit JavaUnit) HadoopLimited {
	return HadoopLimited{rule: hadoopProportional, maxRetries: int64(maxRetries), sleep: sleep,
		unit: unit}
}

// HadoopExponential is exponentialBackoffRetry: (long)(sleep * 2^(retries+1) * U[0.5, 1.5)), with a
// maxRetries from 0 to 62.
//
// Quirks: There is no cap, and the first delay is 2 * sleep on average. The delay is truncated to
// the unit: with a sleep of 1 in JavaSeconds the first delay is 1 s or 2 s. sleep * 2^(retries+1)
// wraps (Compat only). With a sleep of 1000 the delays from retry 53 on are negative, 0 or
// arbitrary: a hot loop or a wait of years.
func HadoopExponential(maxRetries int, sleep int64, unit JavaUnit) HadoopLimited {
	return HadoopLimited{rule: hadoopExponential, maxRetries: int64(maxRetries), sleep: sleep,
		unit: unit}
}

// Compat returns p with the original's overflows.
func (p HadoopLimited) Compat() HadoopLimited { p.compat = true; return p }

func (p HadoopLimited) reason() string {
	if p.rule == hadoopFixedTime {
		return fmt.Sprintf("retries get failed due to exceeded maximum allowed time (in %v): %d",
			p.unit, p.maxTime)
	}
	return fmt.Sprintf("retries get failed due to exceeded maximum allowed retries number: %d",
		p.maxRetries)
}

// Decide implements Hadoop.
func (p HadoopLimited) Decide(f HadoopFailure, src rand.Source) HadoopDecision {
	if int64(f.Retries) >= p.maxRetries {
		return HadoopDecision{Reason: p.reason()}
	}
	return HadoopDecision{HadoopRetry, p.delay(f.Retries, src), p.reason()}
}

func (p HadoopLimited) delay(retries int, src rand.Source) time.Duration {
	switch p.rule {
	case hadoopProportional:
		if p.compat {
			return p.unit.delay(p.sleep * int64(int32(retries)+1))
		}
		return p.unit.delay(times(max(p.sleep, 0), max(int64(retries)+1, 0)))
	case hadoopExponential:
		return p.unit.delay(hadoopTime(p.sleep, retries+1, math.MaxInt64, p.compat, uniform(src)))
	}
	return p.unit.delay(p.sleep)
}

// hadoopTime returns the result of the original's calculateExponentialTime:
// (long)(min(t * (1L << k), limit) * (u + 0.5)). With compat, the shift takes k mod 64 as in Java,
// and the product may wrap before the minimum is taken.
func hadoopTime(t int64, k int, limit int64, compat bool, u float64) int64 {
	var x int64
	switch {
	case compat:
		x = min(t*(1<<(k&63)), limit)
	default:
		x = min(doubled(max(t, 0), uint32(min(max(k, 0), 63))), max(limit, 0))
	}
	return javaLong(float64(float64(x) * float64(u+.5)))
}

// Next implements backoff.Policy.
func (p HadoopLimited) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	if p.Validate() != nil || int64(s.N) >= p.maxRetries {
		return 0, s, false
	}
	d := p.delay(count(s.N), src)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p HadoopLimited) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.Validate() != nil || int64(step(n)) >= p.maxRetries {
		return 0, 0, 0
	}
	k := attemptOf(step(n))
	if p.rule != hadoopExponential {
		d := p.delay(k-1, nil)
		return d, d, d
	}
	at := func(u float64) time.Duration {
		return p.unit.delay(hadoopTime(p.sleep, k, math.MaxInt64, p.compat, u))
	}
	return ordered(at(0), middle(at), at(largest))
}

// Validate implements backoff.Validator. It returns the errors of the original's constructors.
func (p HadoopLimited) Validate() error {
	switch {
	case p.rule == hadoopFixedTime && p.sleep == 0:
		return errors.New("/ by zero")
	case p.maxRetries < 0:
		return fmt.Errorf("maxRetries = %d < 0", p.maxRetries)
	case p.sleep < 0:
		return fmt.Errorf("sleepTime = %d < 0", p.sleep)
	case p.rule == hadoopExponential && p.maxRetries >= 63:
		return fmt.Errorf("maxRetries = %d >= 63", p.maxRetries)
	}
	return nil
}
