//penstock:pure

package control

import (
	"math"
	"time"
)

// limiter paces a lane whose worker has answered that it takes no more than so many a second (429).
// It remembers the rate at which it was refused: the rate falls to 0.7 of what was delivered and
// grows back as CUBIC does (RFC 9438, with the constants of the AWS SDKs' adaptive mode), to just
// below what was refused. There it stays: only after a long while, and each time that proves wrong
// after twice as long, it tries for more. Rates are in attempts a second.
type limiter struct {
	rate      float64 // 0: there is no limit
	ceiling   float64 // at which it was last refused
	cut       time.Duration
	retest    time.Duration // how long the ceiling is believed
	nextStart time.Duration // of an attempt

	// What was delivered in the last second, in tenths.
	counts [rateSlots + 1]uint16
	slot   int64
}

const (
	rateSlots   = 10
	rateSlot    = time.Second / rateSlots
	rateBeta    = 0.7
	rateCubic   = 0.4
	rateBelow   = 0.99 // of the ceiling is held
	rateAhead   = 2.0  // times what is delivered is the most
	rateLeast   = 0.5
	rateFew     = 5 // deliveries in the last second, below which no rate is known
	rateRetest  = time.Minute
	rateLongest = 10 * time.Minute
	rateAlike   = 0.8         // a refusal at so much of the ceiling confirms it
	rateSpan    = time.Second // by which receivers count
	rateOutage  = 2500 * time.Millisecond
	rateChance  = 0.15 // of what a worker refuses by chance, from which on it tells nothing of a rate
	rateForget  = 2.0  // times the ceiling and nothing was refused: there is no limit any more
)

// tell counts a delivery of an attempt that was sent then.
func (r *limiter) tell(now, sent time.Duration) {
	r.turn(now)
	if c := &r.counts[r.slot%int64(len(r.counts))]; *c < math.MaxUint16 {
		*c++
	}
	if r.rate > 0 && sent < r.cut { // it had been taken when the other one was refused, whose answer was quicker
		r.ceiling = max(r.ceiling, r.measured(now))
	}
}

func (r *limiter) turn(now time.Duration) {
	slot := int64(now / rateSlot)
	for i := r.slot + 1; i <= slot && i <= r.slot+int64(len(r.counts)); i++ {
		r.counts[i%int64(len(r.counts))] = 0
	}
	r.slot = max(r.slot, slot)
}

// measured is what was delivered in the last second.
func (r *limiter) measured(now time.Duration) float64 {
	r.turn(now)
	sum := 0.0
	for _, c := range r.counts {
		sum += float64(c)
	}
	part := float64(now%rateSlot) / float64(rateSlot) // of the slot under way; the oldest counts for the rest
	oldest := float64(r.counts[(r.slot+1)%int64(len(r.counts))])
	return sum - part*oldest
}

// refused takes in a 429 for an attempt that was sent then. Refusals of attempts that were sent
// before the last cut say nothing new.
func (r *limiter) refused(now, sent time.Duration) {
	if r.rate > 0 && sent < r.cut {
		return
	}
	at := r.measured(now)
	if at < rateFew {
		if r.rate == 0 {
			return // too few to know a rate; that the gate closes for longer each time is enough
		}
		at = max(at, r.ceiling/2, rateLeast)
	}
	if r.ceiling > 0 && at >= rateAlike*r.ceiling && now-r.cut >= r.retest {
		r.retest = min(2*max(r.retest, rateRetest), rateLongest)
	} else {
		r.retest = max(r.retest, rateRetest)
	}
	r.ceiling, r.cut = at, now
	r.rate = rateBeta * at
}

// suppose takes in that a worker which delivered so many in a second then refused everything, and
// soon after took batches again: it says nothing of a rate, but counts by the second. What was
// refused has left its count by then.
func (r *limiter) suppose(now time.Duration, at float64) {
	switch {
	case r.rate > 0 && at < rateAlike*r.ceiling: // it was paced, and refused all the same
		r.rate, r.ceiling, r.nextStart = 0, 0, 0
		return
	case r.ceiling > 0:
		r.retest = min(2*max(r.retest, rateRetest), rateLongest)
	default:
		r.retest = max(r.retest, rateRetest)
	}
	r.ceiling, r.rate = at, rateBeta*at
	regrown := math.Cbrt(at * (1 - rateBeta) / rateCubic)
	r.cut = now - time.Duration(regrown*float64(time.Second))
}

// paced is the rate now; 0: no limit.
func (r *limiter) paced(now time.Duration) float64 {
	if r.rate == 0 {
		return 0
	}
	top := rateBelow * r.ceiling
	since := (now - r.cut).Seconds()
	k := math.Cbrt(r.ceiling * (1 - rateBeta) / rateCubic)
	if since < k {
		return max(rateLeast, min(top, r.ceiling-rateCubic*math.Pow(k-since, 3)))
	}
	held := r.retest.Seconds() + k
	if since < held {
		return max(rateLeast, top)
	}
	return max(rateLeast, min(top+rateCubic*math.Pow(since-held, 3), rateAhead*max(r.measured(now), top)))
}

// space keeps a distance to the next attempt. There is no burst: what was not used is gone.
func (r *limiter) space(now time.Duration) {
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

// shut says whether the next attempt has to wait.
func (r *limiter) shut(now time.Duration) bool { return r.rate > 0 && now < r.nextStart }
