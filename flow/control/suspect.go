//penstock:pure

package control

import "time"

// outs is the list of the running attempts of a lane that are not overdue, in the order in which
// they were sent.
//
// An attempt that has run longer than nearly all others, while attempts sent after it have been
// delivered, is a suspect: it is probably lost (as in RACK, RFC 8985), long before its timeout. The
// item is not sent again for that reason. But a window does not grow while its lane has suspects,
// and suspects do not count as load of the worker.
type outs struct {
	first, last *attempt
	firm        *attempt      // first attempt that is no suspect; nil: there is none
	delivered   time.Duration // latest send time of a delivered attempt
	suspects    int
	cost        float64 // of the suspects
	apart       int     // attempts of items set apart, which are not in the list
}

// suspectLeast is the minimum age of a suspect, in smoothed round trips.
const suspectLeast = 1.5

func (o *outs) add(a *attempt) {
	a.listed, a.earlier = true, o.last
	if o.last != nil {
		o.last.later = a
	} else {
		o.first = a
	}
	o.last = a
	if o.firm == nil {
		o.firm = a
	}
}

// drop removes a, which was answered, is overdue or has given up its place.
func (o *outs) drop(a *attempt) {
	if !a.listed {
		return
	}
	a.listed = false
	if a.suspect {
		if o.suspects--; o.suspects == 0 {
			o.cost = 0 // remove the rounding errors of the sum
		} else {
			o.cost -= a.cost
		}
	}
	if o.firm == a {
		o.firm = a.later
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

// suspect marks overtaken attempts that have run longer than limit as suspects.
func (o *outs) suspect(now time.Duration, limit time.Duration) {
	for a := o.firm; a != nil && a.sent < o.delivered && now-a.sent > limit; a = a.later {
		a.suspect = true
		o.suspects++
		o.cost += a.cost
		o.firm = a.later
	}
}

// overdueSoon returns the round trip that hardly any item of mean cost exceeds: RFC 6298's timeout
// without its minimum.
func (e *estimator) overdueSoon() time.Duration {
	if e.srtt == 0 {
		return initialRTO
	}
	return toDuration(e.expected(e.mean) * max(e.srtt+4*e.rttvar, suspectLeast*e.srtt))
}
