//penstock:pure

package control

import (
	"math"
	"time"
)

// limiter is the gate that paces a lane with a worker that limits the rate (429). It remembers the
// refused rate. After a refusal, the rate falls to 0.7 of the delivered rate. It then grows as in
// CUBIC (RFC 9438, with the constants of the AWS SDKs' adaptive mode) to just below the refused
// rate, and stays there. The limiter tries a higher rate only after a long wait, which doubles each
// time the higher rate is refused. Rates are in attempts per second.
type limiter struct {
	rate      float64       // after the last cut; 0: there is no limit
	ceiling   float64       // rate that was last refused
	cut       time.Duration // time of the last cut
	retest    time.Duration // time for which the rate stays below the ceiling
	nextStart time.Duration // earliest start of the next attempt

	// deliveries of the last second, counted by tenths of a second
	counts [rateSlots + 1]uint16
	slot   int64
}

const (
	rateSlots         = 10
	rateSlot          = time.Second / rateSlots
	rateBeta          = 0.7
	rateCubic         = 0.4
	rateBelow         = 0.99 // rate until retest has passed, as a share of the ceiling
	rateAhead         = 2.0  // maximum rate, as a multiple of the delivered rate
	minRate           = 0.5
	minRateDeliveries = 5 // least deliveries in the last second from which the rate is known
	rateRetest        = time.Minute
	maxRateRetest     = 10 * time.Minute
	// a refusal at this share of the ceiling or more confirms the ceiling
	rateAlike  = 0.8
	rateSpan   = time.Second // period in which receivers count attempts
	rateOutage = 2500 * time.Millisecond
	// share of random refusals from which refusals say nothing about a rate
	rateChance = 0.15
	rateForget = 2.0 // multiple of the ceiling at which the limit ends if nothing is refused
)

// recordDelivery counts the delivery of an attempt that was sent at the given time.
func (r *limiter) recordDelivery(now, sent time.Duration) {
	r.advance(now)
	if c := &r.counts[r.slot%int64(len(r.counts))]; *c < math.MaxUint16 {
		*c++
	}
	// The worker accepted this attempt before the refused one, although its answer came later.
	if r.rate > 0 && sent < r.cut {
		r.ceiling = max(r.ceiling, r.measured(now))
	}
}

func (r *limiter) advance(now time.Duration) {
	slot := int64(now / rateSlot)
	for i := r.slot + 1; i <= slot && i <= r.slot+int64(len(r.counts)); i++ {
		r.counts[i%int64(len(r.counts))] = 0
	}
	r.slot = max(r.slot, slot)
}

// measured returns the number of deliveries in the last second.
func (r *limiter) measured(now time.Duration) float64 {
	r.advance(now)
	sum := 0.0
	for _, c := range r.counts {
		sum += float64(c)
	}
	// part of the current slot that has passed: the oldest slot counts only for the rest
	part := float64(now%rateSlot) / float64(rateSlot)
	oldest := float64(r.counts[(r.slot+1)%int64(len(r.counts))])
	return sum - part*oldest
}

// refused handles a 429 for an attempt that was sent at the given time. It ignores refusals of
// attempts sent before the last cut.
func (r *limiter) refused(now, sent time.Duration) {
	if r.rate > 0 && sent < r.cut {
		return
	}
	at := r.measured(now)
	if at < minRateDeliveries {
		if r.rate == 0 {
			return // too few deliveries for a rate; the growing waits of the throttle are enough
		}
		at = max(at, r.ceiling/2, minRate)
	}
	if r.ceiling > 0 && at >= rateAlike*r.ceiling && now-r.cut >= r.retest {
		r.retest = min(2*max(r.retest, rateRetest), maxRateRetest)
	} else {
		r.retest = max(r.retest, rateRetest)
	}
	r.ceiling, r.cut = at, now
	r.rate = rateBeta * at
}

// assumeLimit handles a worker that delivered at a certain rate (at), then refused everything, and
// soon accepted batches again. Such a worker limits the number per second without answering 429.
// The attempts that it has refused no longer count towards its limit.
func (r *limiter) assumeLimit(now time.Duration, at float64) {
	switch {
	case r.rate > 0 && at < rateAlike*r.ceiling: // refused although paced: not because of the rate
		r.rate, r.ceiling, r.nextStart = 0, 0, 0
		return
	case r.ceiling > 0:
		r.retest = min(2*max(r.retest, rateRetest), maxRateRetest)
	default:
		r.retest = max(r.retest, rateRetest)
	}
	r.ceiling, r.rate = at, rateBeta*at
	regrown := math.Cbrt(at * (1 - rateBeta) / rateCubic)
	r.cut = now - time.Duration(regrown*float64(time.Second))
}

// paced returns the current rate, or 0 if there is no limit.
func (r *limiter) paced(now time.Duration) float64 {
	if r.rate == 0 {
		return 0
	}
	top := rateBelow * r.ceiling
	since := (now - r.cut).Seconds()
	k := math.Cbrt(r.ceiling * (1 - rateBeta) / rateCubic)
	if since < k {
		return max(minRate, min(top, r.ceiling-rateCubic*math.Pow(k-since, 3)))
	}
	held := r.retest.Seconds() + k
	if since < held {
		return max(minRate, top)
	}
	return max(minRate, min(top+rateCubic*math.Pow(since-held, 3),
		rateAhead*max(r.measured(now), top)))
}

// spaceNext sets the earliest start of the next attempt. There is no burst: unused time is lost.
func (r *limiter) spaceNext(now time.Duration) {
	p := r.paced(now)
	if p <= 0 {
		return
	}
	if p > rateForget*r.ceiling {
		r.rate, r.ceiling, r.nextStart = 0, 0, 0
		return
	}
	r.nextStart = max(r.nextStart, now-time.Duration(float64(time.Second)/p)) + time.Duration(float64(time.Second)/p)
}

// shut reports whether the next attempt has to wait.
func (r *limiter) shut(now time.Duration) bool { return r.rate > 0 && now < r.nextStart }

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

func (r *limiter) started(now time.Duration, _ *attempt) (timed bool) {
	r.spaceNext(now)
	return r.shut(now)
}

func (r *limiter) ended(*attempt) {}
