//penstock:pure

package control

import "time"

// onTimeAttempts is the list of the running attempts of a lane that are not overdue, in the order
// in which they were sent.
//
// Such an attempt is presumed lost if it has run longer than nearly all others, and attempts sent
// after it have been delivered (as in RACK, RFC 8985). Its item is still not sent again before the
// timeout. But a window does not grow while its lane has attempts presumed lost, and these do not
// count as load of the worker.
type onTimeAttempts struct {
	first, last  *attempt
	firstNotLost *attempt      // first attempt not presumed lost; nil: there is none
	delivered    time.Duration // latest send time of a delivered attempt
	lost         int
	lostCost     float64 // of the attempts presumed lost
	ofSuspects   int     // attempts of suspect items, which are not in the list
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
	if o.firstNotLost == nil {
		o.firstNotLost = a
	}
}

// rank increments the ranks of the attempts sent after attempt a, which has been delivered.
func (o *onTimeAttempts) rank(a *attempt) {
	for b := o.last; b != nil && b.id > a.id; b = b.earlier {
		b.rank++
	}
}

// drop removes attempt a, which was answered, is overdue or has given up its place.
func (o *onTimeAttempts) drop(a *attempt) {
	if !a.listed {
		return
	}
	a.listed = false
	if a.presumedLost {
		if o.lost--; o.lost == 0 {
			o.lostCost = 0 // remove the rounding errors of the sum
		} else {
			o.lostCost -= a.cost
		}
	}
	if o.firstNotLost == a {
		o.firstNotLost = a.later
	}
	if a.earlier != nil {
		a.earlier.later = a.later
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

// overtaken reports whether an attempt not presumed lost has been overtaken.
func (o *onTimeAttempts) overtaken() bool {
	return o.firstNotLost != nil && o.firstNotLost.sent < o.delivered
}

// markLost marks overtaken attempts that have run longer than limit as presumed lost.
func (o *onTimeAttempts) markLost(now time.Duration, limit time.Duration) {
	for a := o.firstNotLost; a != nil && a.sent < o.delivered && now-a.sent > limit; a = a.later {
		a.presumedLost = true
		o.lost++
		o.lostCost += a.cost
		o.firstNotLost = a.later
	}
}

// overdueSoon returns the round trip that hardly any item of mean cost exceeds: RFC 6298's timeout
// without its minimum.
func (e *estimator) overdueSoon() time.Duration {
	if e.srtt == 0 {
		return initialRTO
	}
	return toDuration(e.expected(e.mean) * max(e.srtt+4*e.rttvar, minLostAge*e.srtt))
}
