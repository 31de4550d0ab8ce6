//penstock:pure

package control

import (
	"math"
	"time"
)

// estimator learns one lane's round trip, timeout and rate. Times are in seconds.
//
// The round trip is fitted as a + b*cost, and srtt and rttvar are relative to the fit, so that
// items of different cost can be compared. When the fit moves, srtt and rttvar are rescaled. So for
// items of equal cost, srtt and rttvar times the fit are exactly those of RFC 6298. The timeout is
// srtt + 4 rttvar as in the RFC, but with a larger minimum margin (minMargin), and multiplied by
// timeoutFactor.
type estimator struct {
	n, c, r, cc, cr float64 // decayed sums: samples, cost, round trip, cost^2, cost*round trip
	a, b            float64
	mean            float64 // cost of an item
	srtt, rttvar    float64 // relative to the fit; srtt 0: no sample yet

	timeoutFactor float64 // factor on the RFC's timeout, raised by late answers; 0 is 1

	shift   uint          // number of times that the timeout is doubled
	doubled time.Duration // time of the last doubling

	delivered float64 // cost delivered since the lane came up
	// averages over attempts under a backlog; 0: not known
	done, span float64 // cost delivered between sending and answer; that time
	service    float64 // round trip of an item of mean cost at the drained worker; 0: not known
	serviceN   int
	sampled    time.Duration // when a round trip was last measured
	known      bool          // the lane has delivered since it came up
	missed     int           // timeouts in a row since the last delivery
	raise      int           // missed while bad data explained the timeouts
	tail       tail
}

const (
	fitDecay = 0.99
	// relative deviation of the cost below which the fit ignores the cost
	minSpread  = 0.05
	rttWeight  = 1.0 / 8
	varWeight  = 1.0 / 4
	initialRTO = time.Second
	// minimum margin of the timeout above the round trip, in round trips; in the RFC the minimum is
	// the clock granularity
	minMargin          = 1.0
	timeoutFactorStep  = 1.25
	maxTimeoutFactor   = 4.0
	timeoutFactorDecay = 0.99995 // per answer in time; one wrong timeout in 5000 keeps the factor
	maxRTO             = 60 * time.Second
	maxShift           = 9 // 200 ms doubled 9 times exceeds maxRTO
	rateWeight         = 0.1
	staleWeight        = 0.5 // of a sample after more than staleSample without one
	staleSample        = time.Second
	serviceStart       = 10 // the first samples are averaged
	minOfSample        = 0.1
)

// expected returns the fitted round trip of an item of this cost.
func (e *estimator) expected(cost float64) float64 { return e.a + e.b*cost }

// sample records the round trip of a delivered attempt, late or not.
func (e *estimator) sample(rtt, cost float64) {
	rho := 1.0
	old := e.expected(cost)
	if e.srtt > 0 && old > 0 {
		rho = rtt / old
	}
	if e.srtt == 0 {
		e.srtt, e.rttvar = 1, 0.5
	} else {
		e.rttvar += varWeight * (math.Abs(e.srtt-rho) - e.rttvar)
		e.srtt += rttWeight * (rho - e.srtt)
	}
	before := e.expected(e.mean)
	e.fit(rtt, cost)
	if after := e.expected(e.mean); before > 0 && after > 0 {
		e.srtt *= before / after
		e.rttvar *= before / after
	}
}

// fit updates the least-squares line through decayed samples. Its slope is at least 0.
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

// normal converts the round trip of an item of this cost to that of an item of mean cost.
func (e *estimator) normal(rtt, cost float64) float64 {
	if x := e.expected(cost); e.b != 0 && x > 0 {
		return rtt * e.expected(e.mean) / x
	}
	return rtt
}

// rate returns the cost per second under a backlog, or 0 if it is not known. It is a ratio of
// averages. The average of the ratios would be too high, because short round trips would dominate
// it: at a worker with exponential service times and two items in flight, twice the true rate.
func (e *estimator) rate() float64 {
	if e.span == 0 {
		return 0
	}
	return e.done / e.span
}

// progress updates rate and service from an attempt that was delivered in time. The parameter ahead
// is the lane's cost in flight when the attempt was sent. The parameter done is the cost delivered
// since then. Both include the attempt.
func (e *estimator) progress(now time.Duration, rtt, cost, ahead, done float64) {
	weight := rateWeight
	if now-e.sampled > staleSample {
		weight = staleWeight
	}
	e.sampled = now
	rtt = max(rtt, time.Nanosecond.Seconds())
	if ahead >= 2*cost {
		if e.span == 0 {
			e.done, e.span = done, rtt
		}
		e.done += weight * (done - e.done)
		e.span += weight * (rtt - e.span)
	}
	s := rtt
	if rate := e.rate(); rate > 0 {
		s = max(minOfSample*rtt, rtt-(ahead-cost)/rate)
	}
	s = e.normal(s, cost)
	if e.serviceN < serviceStart {
		e.serviceN++
		weight = max(weight, 1/float64(e.serviceN))
	}
	e.service += weight * (s - e.service)
}

// rto returns the timeout of an item of this cost. The parameter least is the minimum for a worker
// with a known round trip.
func (e *estimator) rto(cost float64, least time.Duration) time.Duration {
	d := initialRTO
	if e.srtt > 0 {
		d = toDuration(e.expected(cost) * (e.srtt + max(4*e.rttvar, minMargin*e.srtt)) * max(1,
			e.timeoutFactor))
		d = min(max(d, least), maxRTO)
	}
	return min(d<<min(e.shift, maxShift), maxRTO)
}

// double doubles the timeout, because an attempt that was sent at the given time has become
// overdue. If the timeout is doubled already, only attempts sent after the last doubling count.
func (e *estimator) double(now, sent time.Duration) {
	if e.shift == 0 || sent > e.doubled {
		e.shift = min(e.shift+1, maxShift)
		e.doubled = now
	}
}

// spurious notes that a timeout was wrong, because the delivery came late. It raises
// timeoutFactor: round trips have a longer tail than the RFC assumes, and with too short a timeout
// every item in the tail would be sent twice.
func (e *estimator) spurious() {
	e.timeoutFactor = min(max(1, e.timeoutFactor)*timeoutFactorStep, maxTimeoutFactor)
}

// inTime notes a delivery in time: the timeout is no longer doubled, and timeoutFactor falls
// slowly. Below 1, it counts as 1.
func (e *estimator) inTime() {
	e.shift = 0
	e.timeoutFactor *= timeoutFactorDecay
}

// smoothed returns the smoothed round trip of an item of mean cost.
func (e *estimator) smoothed() time.Duration { return toDuration(e.expected(e.mean) * e.srtt) }

func toDuration(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }
