//penstock:pure

package control

import "time"

// onTimeAttempts is the list of the running attempts of a lane that are not overdue, in the order
// in which they were sent. It knows for each of them how much was delivered of attempts sent later.
//
// An attempt with a place in the window is presumed lost if it has run longer than nearly all
// others and was overtaken (as in RACK, RFC 8985): attempts sent later have been delivered. Its
// item is still not sent again before the timeout. But a window that measures delay does not grow
// while many attempts are presumed lost, and these do not count as load of the worker.
type onTimeAttempts struct {
	first, last *attempt
	firstPlaced *attempt // first attempt with a place in the window; nil: there is none
	newest      uint64   // highest ID of a delivered attempt
	lost        load     // attempts presumed lost
	ofSuspects  int      // attempts of suspect items
}

// minLostAge is the minimum age of an attempt presumed lost, in smoothed round trips.
const minLostAge = 1.5

func (o *onTimeAttempts) add(a *attempt) {
	a.listed, a.earlier = true, o.last
	if o.last != nil {
		o.last.later = a
	} else {
		o.first = a
	}
	o.last = a
	if o.firstPlaced == nil && a.placed {
		o.firstPlaced = a
	}
}

// recordDelivery notes that the given cost of attempt a was delivered, so that attempts sent before
// a were overtaken.
func (o *onTimeAttempts) recordDelivery(a *attempt, cost float64) {
	o.newest = max(o.newest, a.id)
	before := a.earlier
	if !a.listed {
		for b := o.first; b != nil && b.id < a.id; b = b.later {
			before = b
		}
	}
	if before != nil {
		before.overtakers += cost
	}
}

// overtaken returns the cost that was delivered of attempts sent later than attempt a.
func (o *onTimeAttempts) overtaken(a *attempt) (cost float64) {
	for ; a != nil && a.id < o.newest; a = a.later {
		cost += a.overtakers
	}
	return cost
}

// endPlace notes that attempt a has no place in the window any more.
func (o *onTimeAttempts) endPlace(a *attempt) {
	if a.presumedLost {
		a.presumedLost = false
		o.lost.remove(a.cost)
	}
	if o.firstPlaced == a {
		o.firstPlaced = placedAfter(a)
	}
}

// placedAfter returns the first attempt with a place after attempt a in the list, or nil.
func placedAfter(a *attempt) *attempt {
	for a = a.later; a != nil && !a.placed; {
		a = a.later
	}
	return a
}

// countHanging returns the number of attempts that have given up their places in the window because
// they hang. Attempts of suspects do not count.
func (o *onTimeAttempts) countHanging() (n int) {
	for a := o.first; a != nil; a = a.later {
		n += one(a.excluded && !a.ofSuspect)
	}
	return n
}

// drop removes attempt a, which was answered or is overdue.
func (o *onTimeAttempts) drop(a *attempt) {
	if !a.listed {
		return
	}
	o.endPlace(a)
	a.listed = false
	if a.earlier != nil {
		a.earlier.later = a.later
		a.earlier.overtakers += a.overtakers
	} else {
		o.first = a.later
	}
	if a.later != nil {
		a.later.earlier = a.earlier
	} else {
		o.last = a.earlier
	}
	a.earlier, a.later = nil, nil
}

// markLost marks overtaken attempts that have run longer than nearly all others as presumed lost.
func (o *onTimeAttempts) markLost(now time.Duration, e *estimator) {
	for a := o.firstPlaced; a != nil && a.id < o.newest && now-a.sent > e.overdueSoon(); {
		if !a.presumedLost {
			a.presumedLost = true
			o.lost.add(a.cost)
		}
		a = placedAfter(a)
	}
}

// overdueSoon returns the round trip that hardly any item of mean cost exceeds: RFC 6298's timeout,
// but with minLostAge round trips as its minimum.
func (e *estimator) overdueSoon() time.Duration {
	if e.srtt == 0 {
		return initialRTO
	}
	return toDuration(e.expected(e.mean) * max(e.srtt+4*e.rttvar, minLostAge*e.srtt))
}
