//penstock:pure

package control

import "time"

// estimator learns one lane's round trip, timeout and rate. Times are in seconds.
//
// The round trip is fitted as a + b*cost, and everything else is kept relative to the fit, so that
// items of different size can be compared (research/flowcontrol 2.4). The timeout is that of RFC
// 6298 on the relative round trip: srtt + 4 rttvar. Where the fit moves, srtt and rttvar are
// rescaled, so that for items of equal cost the timeout is RFC 6298's on the plain round trip,
// exactly.
type estimator struct {
	n, c, r, cc, cr float64 // decayed sums: samples, cost, round trip, cost^2, cost*round trip
	a, b            float64
	mean            float64 // cost of an item
	srtt, rttvar    float64 // relative to the fit; srtt 0: no sample yet

	patience float64 // factor on the RFC's timeout, raised by late answers; 0 is 1

	shift   uint          // the timeout is doubled so many times
	doubled time.Duration // when last

	delivered float64 // cost, since the lane came up
	rate      float64 // cost per second under a backlog; 0: not known
	service   float64 // round trip of an item of mean cost at the drained worker; 0: not known
	serviceN  int
	sampled   time.Duration // when a round trip was last measured
	known     bool          // it has answered since it came up
	tail      tail
}

const (
	fitDecay = 0.99
	// relative deviation of cost below which the round trip is not fitted to it
	minSpread  = 0.05
	rttWeight  = 1.0 / 8
	varWeight  = 1.0 / 4
	initialRTO = time.Second
	// of the timeout above the round trip, in round trips: the RFC's clock granularity
	leastMargin   = 1.0
	patienceStep  = 1.25
	patienceMost  = 4.0
	patienceDecay = 0.99995 // per answer in time: about one timeout in five thousand may be wrong
	maxRTO        = 60 * time.Second
	maxShift      = 9 // 200 ms doubled so often is more than maxRTO
	rateWeight    = 0.1
	staleWeight   = 0.5 // for a sample after more than a second without one
	staleSample   = time.Second
	serviceStart  = 10 // the first samples are averaged
	leastOfSample = 0.1
)

// expected round trip of an item of this cost.
func (e *estimator) expected(cost float64) float64 { return e.a + e.b*cost }

// sample takes in a round trip of an attempt, late or not.
func (e *estimator) sample(rtt, cost float64) {
	rho := 1.0
	old := e.expected(cost)
	if e.srtt > 0 && old > 0 {
		rho = rtt / old
	}
	if e.srtt == 0 {
		e.srtt, e.rttvar = 1, 0.5
	} else {
		d := e.srtt - rho
		if d < 0 {
			d = -d
		}
		e.rttvar += varWeight * (d - e.rttvar)
		e.srtt += rttWeight * (rho - e.srtt)
	}
	before := e.expected(e.mean)
	e.fit(rtt, cost)
	if after := e.expected(e.mean); before > 0 && after > 0 {
		e.srtt *= before / after
		e.rttvar *= before / after
	}
}

// fit is a least-squares line through decayed samples, with a slope of at least 0.
func (e *estimator) fit(rtt, cost float64) {
	e.n = fitDecay*e.n + 1
	e.c = fitDecay*e.c + cost
	e.r = fitDecay*e.r + rtt
	e.cc = fitDecay*e.cc + cost*cost
	e.cr = fitDecay*e.cr + cost*rtt
	mean, round := e.c/e.n, e.r/e.n
	spread := e.cc/e.n - mean*mean
	e.mean, e.b = mean, 0
	if spread > minSpread*minSpread*mean*mean {
		e.b = max(0, min((e.cr/e.n-mean*round)/spread, round/mean))
	}
	e.a = round - e.b*mean
}

// normal returns the equivalent round trip for an item of mean cost.
func (e *estimator) normal(rtt, cost float64) float64 {
	if e.b == 0 {
		return rtt
	}
	x := e.expected(cost)
	if x <= 0 {
		return rtt
	}
	return rtt * e.expected(e.mean) / x
}

// progress updates rate and service from an attempt that was delivered in time. ahead is the cost
// in flight when it was sent, and done the lane's deliveries from then on; both include the
// attempt.
func (e *estimator) progress(now time.Duration, rtt, cost, ahead, done float64) {
	weight := rateWeight
	if now-e.sampled > staleSample {
		weight = staleWeight
	}
	e.sampled = now
	if rtt <= 0 {
		rtt = 1e-9
	}
	if ahead >= 2*cost {
		if r := done / rtt; e.rate == 0 {
			e.rate = r
		} else {
			e.rate += weight * (r - e.rate)
		}
	}
	s := rtt
	if e.rate > 0 {
		s = max(leastOfSample*rtt, rtt-(ahead-cost)/e.rate)
	}
	s = e.normal(s, cost)
	if e.serviceN < serviceStart {
		e.serviceN++
		weight = max(weight, 1/float64(e.serviceN))
	}
	e.service += weight * (s - e.service)
}

// rto returns the timeout of an item of this cost. least is the minimum for a worker with a known
// round trip.
func (e *estimator) rto(cost float64, least time.Duration) time.Duration {
	d := initialRTO
	if e.srtt > 0 {
		d = toDuration(e.expected(cost) * (e.srtt + max(4*e.rttvar, leastMargin*e.srtt)) * max(1, e.patience))
		d = min(max(d, least), maxRTO)
	}
	return min(d<<min(e.shift, maxShift), maxRTO)
}

// lighter is how much less than the smoothed round trip one is expected to take with this cost in
// flight, 0 to 1.
func (e *estimator) lighter(ahead float64) float64 {
	usual := e.expected(e.mean) * e.srtt
	if e.rate == 0 || usual == 0 {
		return 1
	}
	return min(1, (e.service+ahead/e.rate)/usual)
}

// double makes the timeout twice as long, once for all attempts that were sent before it was last
// doubled.
func (e *estimator) double(now, sent time.Duration) {
	if e.shift == 0 || sent > e.doubled {
		e.shift = min(e.shift+1, maxShift)
		e.doubled = now
	}
}

// spurious takes in that a timeout was wrong: its answer has come. The tail of the round trip is
// longer than the RFC supposes, and a timeout that stays too short sends everything of the tail
// twice.
func (e *estimator) spurious() { e.patience = min(max(1, e.patience)*patienceStep, patienceMost) }

// inTime lets the timeout come back to the RFC's.
func (e *estimator) inTime() {
	e.shift = 0
	e.patience *= patienceDecay
}

// smoothed round trip of an item of mean cost.
func (e *estimator) smoothed() time.Duration { return toDuration(e.expected(e.mean) * e.srtt) }

func toDuration(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }
