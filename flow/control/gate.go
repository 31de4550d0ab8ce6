//penstock:pure

package control

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-io/penstock/rate"
)

// gate is one reason why a lane may take nothing, or only so much. A lane takes the least that its
// gates leave. Each kind of gate owns its state: [throttle], [limiter], [bucketGate], [slots].
type gate interface {
	// name is the gate's name in a [LaneStatus].
	name() string
	// room returns how many attempts may start now, and unlimited if it does not matter.
	room(now time.Duration) int
	// next returns when the room may change although nothing happens, and false if it will not.
	next(now time.Duration) (at time.Duration, ok bool)
	// started and ended take in an attempt.
	started(now time.Duration, a *attempt)
	ended(a *attempt)
}

const unlimited = math.MaxInt

// gates are those of one lane, or those that all lanes share.
type gates []gate

// room returns the least room of all, and the gate that has it.
func (all gates) room(now time.Duration) (n int, least gate) {
	n = unlimited
	for _, g := range all {
		if r := g.room(now); r < n {
			n, least = r, g
		}
	}
	return n, least
}

// shut reports whether one of them leaves no room.
func (all gates) shut(now time.Duration) bool {
	n, _ := all.room(now)
	return n == 0
}

// started takes in an attempt, and reports whether a gate is shut until a time.
func (all gates) started(now time.Duration, a *attempt) (timed bool) {
	for _, g := range all {
		g.started(now, a)
		_, ok := g.next(now)
		timed = timed || ok
	}
	return timed
}

// ended takes in that an attempt has been answered.
func (all gates) ended(a *attempt) {
	for _, g := range all {
		g.ended(a)
	}
}

// Limit bounds attempts, whatever windows say. The zero value means none.
type Limit struct {
	Rate        float64 // cost a second, such as records; 0 means no limit
	Bytes       float64 // a second; 0 means no limit
	Concurrency int     // attempts in flight, overdue ones included; 0 means no limit
}

func (l Limit) validate() error {
	if !(l.Rate >= 0) || !(l.Bytes >= 0) || math.IsInf(l.Rate, 0) || math.IsInf(l.Bytes, 0) || l.Concurrency < 0 {
		return fmt.Errorf("a limit of %v a second, %v bytes a second and %d attempts: want positive numbers, or 0 for none",
			l.Rate, l.Bytes, l.Concurrency)
	}
	return nil
}

// gates returns the gates that make up the limit.
func (l Limit) gates() (all gates) {
	if l.Rate > 0 {
		all = append(all, newBucketGate(gateQuota, l.Rate, func(a *attempt) float64 { return a.cost }))
	}
	if l.Bytes > 0 {
		all = append(all, newBucketGate(gateBytes, l.Bytes, func(a *attempt) float64 { return float64(a.item.bytes) }))
	}
	if l.Concurrency > 0 {
		all = append(all, &slots{most: l.Concurrency})
	}
	return all
}

// bucketGate lets attempts start while its bucket holds a token. An attempt may take more than
// that, and later ones wait until that is made up for: in t seconds, at most perSecond * (t +
// burst) tokens and one attempt more are taken.
type bucketGate struct {
	label  string
	bucket rate.Bucket
	tokens func(a *attempt) float64
}

const (
	burst     = 0.1  // seconds of tokens that are saved up
	leastLeft = 1e-6 // of a token is none
)

func newBucketGate(label string, perSecond float64, tokens func(a *attempt) float64) *bucketGate {
	return &bucketGate{label, rate.NewBucket(perSecond, max(1, burst*perSecond)), tokens}
}

func (g *bucketGate) name() string { return g.label }

func (g *bucketGate) room(now time.Duration) int {
	if g.bucket.Tokens(now) < leastLeft/2 {
		return 0
	}
	return 1 // and after that it is asked again
}

func (g *bucketGate) next(now time.Duration) (time.Duration, bool) {
	wait := g.bucket.Wait(now, leastLeft)
	return now + wait, wait > 0
}

func (g *bucketGate) started(now time.Duration, a *attempt) { g.bucket.Add(now, -g.tokens(a)) }
func (g *bucketGate) ended(*attempt)                        {}

// slots bounds attempts in flight.
type slots struct{ most, taken int }

func (g *slots) name() string                             { return gateConcurrency }
func (g *slots) room(time.Duration) int                   { return max(0, g.most-g.taken) }
func (g *slots) next(time.Duration) (time.Duration, bool) { return 0, false }
func (g *slots) started(time.Duration, *attempt)          { g.taken++ }
func (g *slots) ended(*attempt)                           { g.taken-- }

// throttle is the gate of a worker that is alive but full: shut until a time.
type throttle struct {
	until  time.Duration
	outage outage // the waits, where the worker names none
}

func (g *throttle) name() string { return gateThrottle }

func (g *throttle) room(now time.Duration) int {
	if now < g.until {
		return 0
	}
	return unlimited
}

func (g *throttle) next(now time.Duration) (time.Duration, bool) { return g.until, now < g.until }
func (g *throttle) started(time.Duration, *attempt)              {}
func (g *throttle) ended(*attempt)                               {}

func (r *limiter) name() string { return gateRate }

func (r *limiter) room(now time.Duration) int {
	switch {
	case r.rate == 0:
		return unlimited
	case r.shut(now):
		return 0
	}
	return 1
}

func (r *limiter) next(now time.Duration) (time.Duration, bool) {
	return r.nextStart, r.rate > 0 && now < r.nextStart
}

func (r *limiter) started(now time.Duration, _ *attempt) { r.space(now) }
func (r *limiter) ended(*attempt)                        {}
