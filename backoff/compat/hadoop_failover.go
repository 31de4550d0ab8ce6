//penstock:pure

package compat

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// HadoopFailover is failoverOnNetworkException. After a network failure, or any other IOException
// of an idempotent call except a RemoteException, it fails over to another server, after a delay. A
// RetriableException is retried at the same server. The numbers of failovers and of retries are
// limited. A SASL failure, an invalid token and denied access end the call, and so does an
// IOException if the call is not idempotent. Fallback decides about all other failures.
//
// Quirks: The first failover waits 0, and the second 2 * Delay on average. The delay is cut to
// MaxDelay before the jitter, so it reaches 1.5 * MaxDelay. Delay times the power of two wraps,
// and the power of two wraps from 2^64 on (both with Compat only). MaxRetries limits the number of
// retries minus the number of failovers. A remote AccessControlException is not refused at once:
// Fallback decides about it.
type HadoopFailover struct {
	Fallback       Hadoop // nil means HadoopTryOnce
	MaxFailovers   int
	MaxRetries     int   // the short constructors of the original set 0
	DelayMillis    int64 // an int64 of milliseconds may be beyond a Duration
	MaxDelayMillis int64 // milliseconds
	Compat         bool
}

func (p HadoopFailover) fallback() Hadoop {
	return cmp.Or[Hadoop](p.Fallback, HadoopTryOnce())
}

// sleep returns the wait before a retry or failover, like the original's
// getFailoverOrRetrySleepTime. The parameter times is the number of earlier retries or failovers,
// and u is a draw from [0, 1).
func (p HadoopFailover) sleep(times int, u float64) time.Duration {
	if times == 0 || times < 0 && !p.Compat {
		return 0
	}
	return millis(hadoopTime(p.DelayMillis, times, p.MaxDelayMillis, p.Compat, u))
}

// failovers lists the exception classes of calls that reached no server, or a server that does not
// serve requests.
var failovers = []string{
	"ConnectException", "EOFException", "NoRouteToHostException", "UnknownHostException",
	"StandbyException",
	"ConnectTimeoutException",
}

func (e JavaError) failsOver() bool {
	return slices.ContainsFunc(failovers, e.isA) ||
		e.Remote == "StandbyException" || e.Remote == "ObserverRetryOnActiveException"
}

// beyondRetries reports whether the number of retries minus the number of failovers is above
// MaxRetries. With Compat the difference wraps in a 32-bit int, as in the original.
func (p HadoopFailover) beyondRetries(f HadoopFailure) bool {
	if p.Compat {
		return int64(int32(f.Retries)-int32(f.Failovers)) > int64(p.MaxRetries)
	}
	return f.Retries-f.Failovers > p.MaxRetries
}

// Decide implements Hadoop.
func (p HadoopFailover) Decide(f HadoopFailure, src rand.Source) HadoopDecision {
	e := f.Err
	switch {
	case f.Failovers >= p.MaxFailovers:
		return HadoopDecision{Reason: fmt.Sprintf("failovers (%d) exceeded maximum allowed (%d)",
			f.Failovers, p.MaxFailovers)}
	case p.beyondRetries(f):
		return HadoopDecision{Reason: fmt.Sprintf("retries (%d) exceeded maximum allowed (%d)",
			f.Retries, p.MaxRetries)}
	case e.anyIsA("SaslException"):
		return HadoopDecision{Reason: "SASL failure"}
	case e.failsOver():
		return HadoopDecision{Action: HadoopFailOver, Delay: p.sleep(f.Failovers, uniform(src))}
	case e.isA("RetriableException") || e.Remote == "RetriableException":
		return HadoopDecision{Action: HadoopRetry, Delay: p.sleep(f.Retries, uniform(src))}
	case e.isA("InvalidToken"):
		return HadoopDecision{Reason: "Invalid or Cancelled Token"}
	case e.anyIsA("AccessControlException"):
		return HadoopDecision{Reason: "Access denied"}
	case e.isA("IOException") && !e.isA("RemoteException"):
		if f.Idempotent {
			return HadoopDecision{Action: HadoopFailOver, Delay: p.sleep(f.Retries, uniform(src))}
		}
		return HadoopDecision{Reason: "the invoked method is not idempotent, and unable to " +
			"determine whether it was invoked"}
	}
	return p.fallback().Decide(f, src)
}

// Next implements backoff.Policy for a server that cannot be reached: every wait is a failover.
func (p HadoopFailover) Next(s backoff.State,
	src rand.Source) (time.Duration, backoff.State, bool) {
	k := count(s.N)
	f := HadoopFailure{Err: JavaError{Class: "ConnectException"}, Retries: k, Failovers: k,
		Idempotent: true}
	d := p.Decide(f, src)
	if d.Action == HadoopFail || p.Validate() != nil {
		return 0, s, false
	}
	return d.Delay, s.After(d.Delay), true
}

// Bounds implements backoff.Bounder, for failovers.
func (p HadoopFailover) Bounds(n int) (lowest, mean, highest time.Duration) {
	k := count(step(n))
	if k >= p.MaxFailovers || p.MaxRetries < 0 {
		return 0, 0, 0
	}
	at := func(u float64) time.Duration { return p.sleep(k, u) }
	return ordered(at(0), middle(at), at(largest))
}

// Validate implements backoff.Validator. It returns an error only if the fallback is invalid,
// because the original accepts everything else.
func (p HadoopFailover) Validate() error { return p.fallback().Validate() }

// HadoopByClass chooses a policy by the class of the exception: see its constructors.
type HadoopByClass struct {
	choose   func(JavaError) string // returns the class to look up, or "" for the fallback
	fallback Hadoop
	policies map[string]Hadoop
}

// HadoopByException returns a policy that looks up the class of the exception in policies. The
// policy found there decides, or fallback if there is none.
//
// Quirk: only the exact class counts, not its superclasses or causes. A RemoteException counts as
// RemoteException, regardless of the class that it carries.
func HadoopByException(fallback Hadoop, policies map[string]Hadoop) HadoopByClass {
	return HadoopByClass{func(e JavaError) string { return e.Class }, fallback, policies}
}

// HadoopByRemoteException returns a policy that looks up, in policies, the class that a
// RemoteException carries. The fallback decides about every other exception.
func HadoopByRemoteException(fallback Hadoop, policies map[string]Hadoop) HadoopByClass {
	return HadoopByClass{func(e JavaError) string { return e.Remote }, fallback, policies}
}

// HadoopOtherThanRemoteAndSASL returns a policy that looks up the class of an exception in
// policies. The fallback decides about a RemoteException, a SaslException, and an exception with a
// SaslException among its causes.
func HadoopOtherThanRemoteAndSASL(fallback Hadoop, policies map[string]Hadoop) HadoopByClass {
	return HadoopByClass{func(e JavaError) string {
		if e.isA("RemoteException") || e.anyIsA("SaslException") {
			return ""
		}
		return e.Class
	}, fallback, policies}
}

func (p HadoopByClass) policy(e JavaError) Hadoop {
	if p.choose != nil {
		if class := p.choose(e); class != "" {
			if chosen, ok := p.policies[class]; ok && chosen != nil {
				return chosen
			}
		}
	}
	return cmp.Or[Hadoop](p.fallback, HadoopTryOnce())
}

// Decide implements Hadoop.
func (p HadoopByClass) Decide(f HadoopFailure, src rand.Source) HadoopDecision {
	return p.policy(f.Err).Decide(f, src)
}

// Next implements backoff.Policy for an IOException of an idempotent call.
func (p HadoopByClass) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	return p.policy(JavaError{Class: "IOException"}).Next(s, src)
}

// Bounds implements backoff.Bounder for an IOException.
func (p HadoopByClass) Bounds(n int) (lowest, mean, highest time.Duration) {
	return p.policy(JavaError{Class: "IOException"}).Bounds(n)
}

// Validate implements backoff.Validator. It returns the first error of the policies.
func (p HadoopByClass) Validate() error {
	if err := p.policy(JavaError{}).Validate(); err != nil {
		return err
	}
	for _, class := range slices.Sorted(maps.Keys(p.policies)) {
		policy := p.policies[class]
		if policy == nil {
			continue
		}
		if err := policy.Validate(); err != nil {
			return fmt.Errorf("policy of %s: %w", class, err)
		}
	}
	return nil
}
