//penstock:pure

package control

import (
	"math"
	"time"
)

// limiter is the gate that paces a lane with a worker that limits the rate (429). It remembers the
// refused rate. After a refusal, the rate falls to 0.7 of the delivered rate. It then grows as in
// CUBIC (RFC 9438, with the constants of the AWS SDKs' adaptive mode) to just below the refused
// rate, and stays there. The limiter tries a higher rate only after a further wait (retest), which
// doubles each time the higher rate is refused. Rates are in attempts per second.
//
// Refusals may also have causes that pacing does not change. For example, a worker may refuse each
// seventh request at any rate. So the limiter compares the shares of refused attempts with and
// without the limit. If the limit does not halve the share, it ends, unless the share is high (see
// maxRateChance).
type limiter struct {
	rate      float64       // after the last cut; 0: there is no limit
	ceiling   float64       // rate that was last refused
	cut       time.Duration // time of the last cut
	retest    time.Duration // time for which the rate stays below the ceiling
	nextStart time.Duration // earliest start of the next attempt

	last    time.Duration // time of the last refusal
	resumed bool          // an attempt was delivered since the last refusal
	// attempts since the limit began, or without a limit since the series of refusals began
	tally   tally
	unpaced float64 // share of refusals before the limit
	chance  float64 // share of refusals that a limit did not halve; 0: none

	// deliveries of the last second, counted by tenths of a second
	counts [rateSlots + 1]uint16
	slot   int64
}

// tally counts deliveries and refusals since a certain time, to find out whether the limit reduces
// the share of refusals. If the limiter tries out a rate above the ceiling and the worker refuses
// it, tally does not count this refusal, nor those after it up to the next delivery.
type tally struct {
	since              time.Duration
	delivered, refused float64
	recent             int // deliveries since the last refusal that came after a delivery
	skip               bool
}

// share returns the share of refusals.
func (t *tally) share() float64 { return t.refused / max(1, t.refused+t.delivered) }

const (
	rateSlots         = 10
	rateSlot          = time.Second / rateSlots
	rateBeta          = 0.7
	rateCubic         = 0.4
	rateBelow         = 0.99 // rate until retest has passed, as a share of the ceiling
	rateAhead         = 2.0  // maximum rate, as a multiple of the delivered rate
	minRate           = 0.1
	minRateDeliveries = 5 // least deliveries from which the rate is known
	rateRetest        = time.Minute
	maxRateRetest     = 10 * time.Minute
	rateStated        = 60 // least retest, as a multiple of the wait that the worker has stated
	// a refusal at this share of the ceiling or more confirms the ceiling
	rateAlike  = 0.8
	rateSpan   = time.Second    // period in which receivers count attempts
	rateLate   = rateSpan / 100 // (1 - rateBelow) * rateSpan
	rateOutage = 2500 * time.Millisecond
	// share of random refusals from which refusals say nothing about a rate
	rateChance = 0.15
	rateForget = 2.0 // multiple of the ceiling at which the limit ends if nothing is refused
	rateTested = 10  // intervals at the ceiling for which higher rates are tested before it ends

	rateGap = 2 * time.Second // time without refusals that ends a series of refusals
	// deliveries since the last refusal from which a refusal only lowers the ceiling a little
	rateTolerance = 50
	// A limit does not help if the share of refusals is at most maxRateChance and at least half of
	// the share without the limit. This is judged after minRateRefusals refusals.
	minRateRefusals = 3
	maxRateChance   = 0.2
	rateMemory      = 1000.0 // deliveries of a tally after which its counts are halved
)

// recordDelivery counts the delivery of an attempt that was sent at the given time.
func (r *limiter) recordDelivery(now, sent time.Duration) {
	r.advance(now)
	if c := &r.counts[r.slot%int64(len(r.counts))]; *c < math.MaxUint16 {
		*c++
	}
	r.tally.delivered++
	r.tally.recent++
	r.resumed = true
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

// countRefusal counts a refused attempt.
func (r *limiter) countRefusal() {
	if !r.tally.skip {
		r.tally.refused++
	}
}

// refused handles a 429 for an attempt that was sent after the last 429. The parameter opened is
// the time at which the throttle has opened after the last 429. The parameter stated is the wait
// that the worker has stated, or 0. A worker that states a wait limits the rate, so a limit begins
// at once, if there were enough deliveries to know the rate. Without a stated wait, a limit begins
// when refusals recur for a second, because a worker may have accepted a burst before the first
// refusal:
//
//	deliveries, 429 |--- deliveries and 429s, for 1 s ---| limit: 0.7 of the deliveries per second
func (r *limiter) refused(now, opened, stated time.Duration) {
	resumed, gap := r.resumed, now-max(r.last, opened)
	r.resumed, r.last = false, now
	switch {
	case r.rate > 0:
		if resumed {
			r.refusedPaced(now, stated)
		}
	case stated > 0:
		if at := r.measured(now); at >= minRateDeliveries {
			r.begin(now, at, 1, min(max(rateRetest, rateStated*stated), maxRateRetest))
		}
	case gap > rateGap || r.tally.since == 0:
		if gap > rateRetest {
			r.chance = 0
		}
		r.tally = tally{since: now}
	case resumed && now-r.tally.since >= rateSpan && r.tally.delivered >= minRateDeliveries:
		share := r.tally.share()
		if r.chance > 0 && share <= 1.5*r.chance+0.1 { // a limit would not help
			r.tally = tally{since: now}
			return
		}
		at := r.measured(now)
		if at < minRateDeliveries {
			at = r.tally.delivered / (now - r.tally.since).Seconds()
		}
		// The first ceiling may be too low, so a higher rate is tested soon.
		r.begin(now, at, share, 0)
	}
}

// begin begins a limit. The parameter at is the refused rate.
func (r *limiter) begin(now time.Duration, at, unpaced float64, retest time.Duration) {
	r.unpaced, r.retest, r.tally = unpaced, retest, tally{since: now}
	r.cutTo(now, at)
}

// cutTo sets the ceiling and lowers the rate.
func (r *limiter) cutTo(now time.Duration, at float64) {
	at = max(at, minRate)
	r.ceiling, r.cut, r.rate = at, now, max(minRate, rateBeta*at)
	r.nextStart = max(r.nextStart, now+time.Duration(float64(time.Second)/r.rate))
}

// end ends the limit.
func (r *limiter) end() { r.rate, r.ceiling, r.nextStart, r.tally = 0, 0, 0, tally{} }

// refusedPaced handles a refusal after a delivery, although the attempts were paced.
func (r *limiter) refusedPaced(now, stated time.Duration) {
	t := &r.tally
	paced, recent := r.paced(now), t.recent
	t.recent = 0
	tested := paced > r.ceiling // a higher rate was tried out
	if tested && !t.skip {
		t.refused-- // counted by countRefusal
	}
	t.skip = tested
	share := t.share()
	switch {
	case tested:
	case t.refused >= minRateRefusals && 2*share >= r.unpaced && share <= maxRateChance:
		r.end()
		r.chance, t.since = share, now
		return
	case recent >= rateTolerance && r.measured(now) >= rateAlike*r.ceiling:
		r.ceiling = max(minRate, rateBelow*r.ceiling)
		return
	}
	if t.delivered > rateMemory {
		t.delivered /= 2
		t.refused /= 2
	}
	at := r.measured(now)
	switch {
	case at < minRateDeliveries:
		at = paced
	case tested && stated > 0:
		at = max(at, r.ceiling) // a higher estimate risks a further wait
	case tested:
		at = (at + paced) / 2 // the rate has grown during the last second
	}
	if tested {
		r.retest = min(max(2*r.retest, rateRetest, rateStated*stated), maxRateRetest)
	}
	r.cutTo(now, at)
}

// assumeLimit handles a worker that delivered at a certain rate (at), then refused everything, and
// soon accepted batches again. Such a worker limits the attempts per second without answering 429.
// The limiter then begins to pace it just below that rate. But if the worker was paced already, and
// refused a rate far below the ceiling (the rate that it refused last), pacing does not help, and
// the limit ends.
func (r *limiter) assumeLimit(now time.Duration, at float64) {
	switch {
	case r.rate > 0 && at < rateAlike*r.ceiling: // refused although paced: not because of the rate
		r.end()
		return
	case r.ceiling > 0:
		r.retest = min(2*max(r.retest, rateRetest), maxRateRetest)
	default:
		r.retest = max(r.retest, rateRetest)
	}
	r.ceiling, r.rate, r.unpaced, r.tally = at, rateBeta*at, 1, tally{since: now}
	r.cut = now - time.Duration(r.regrowth()*float64(time.Second))
}

// paced returns the current rate, or 0 if there is no limit.
func (r *limiter) paced(now time.Duration) float64 {
	if r.rate == 0 {
		return 0
	}
	top := rateBelow * r.ceiling
	if k := r.regrowth(); (now - r.cut).Seconds() < k {
		left := k - (now - r.cut).Seconds()
		return max(minRate, min(top, r.ceiling-rateCubic*math.Pow(left, 3)))
	}
	tested := r.testedFor(now)
	if tested < 0 {
		return max(minRate, top)
	}
	// Less than one delivery in a second is not measurable.
	return min(top+rateCubic*math.Pow(tested, 3), rateAhead*max(r.measured(now), top, 1))
}

// regrowth returns the seconds from a cut until the rate has grown to the ceiling.
func (r *limiter) regrowth() float64 { return math.Cbrt(r.ceiling * (1 - rateBeta) / rateCubic) }

// testedFor returns the seconds for which the limiter has tried out rates above the ceiling, the
// rate that was last refused. It returns a negative number if it does not do so yet.
func (r *limiter) testedFor(now time.Duration) float64 {
	return (now - r.cut - r.retest).Seconds() - r.regrowth()
}

// spaceNext sets the earliest start of the next attempt. A start that is up to rateLate late does
// not delay the next attempts. Any further unused time is lost. So at the normal rate, rateBelow of
// the ceiling, no more attempts start in any rateSpan than the ceiling allows.
func (r *limiter) spaceNext(now time.Duration) {
	p := r.paced(now)
	if p <= 0 {
		return
	}
	// The worker accepts more, and the limit no longer binds.
	if p > rateForget*r.ceiling && p >= rateAhead*r.measured(now) &&
		r.testedFor(now) >= rateTested/r.ceiling {
		r.end()
		return
	}
	interval := time.Duration(float64(time.Second) / p)
	r.nextStart = max(r.nextStart, now-min(interval, rateLate)) + interval
}

// shut reports whether the next attempt has to wait.
func (r *limiter) shut(now time.Duration) bool { return r.rate > 0 && now < r.nextStart }

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
