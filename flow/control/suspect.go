//penstock:pure

package control

import "time"

// outs are the running attempts of a lane that are not overdue, in the order in which they were
// sent.
//
// One that runs for longer than nearly all others, while attempts sent after it have been
// delivered, is a suspect: it is probably lost (as in RACK, RFC 8985), long before its timeout. It
// is not sent again for that reason. But a window does not grow while it leaves suspects behind,
// and lost attempts do not count as being at the worker.
type outs struct {
	first, last *attempt
	firm        *attempt      // the first that is no suspect; nil: all are
	delivered   time.Duration // when the latest of those delivered was sent
	suspects    int
	cost        float64 // of the suspects
	apart       int     // attempts of items set apart; they are not in the list
}

// suspectLeast is the least round trips after which an attempt can be a suspect.
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

// drop takes a out, which was answered or is overdue.
func (o *outs) drop(a *attempt) {
	if !a.listed {
		return
	}
	a.listed = false
	if a.suspect {
		if o.suspects--; o.suspects == 0 {
			o.cost = 0 // a sum of floats
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

// suspect marks those that are out for longer than limit.
func (o *outs) suspect(now time.Duration, limit time.Duration) {
	for a := o.firm; a != nil && a.sent < o.delivered && now-a.sent > limit; a = a.later {
		a.suspect = true
		o.suspects++
		o.cost += a.cost
		o.firm = a.later
	}
}

// overdueSoon is the round trip that hardly any item of mean cost exceeds: RFC 6298's timeout
// without its floor.
func (e *estimator) overdueSoon() time.Duration {
	if e.srtt == 0 {
		return initialRTO
	}
	return toDuration(e.expected(e.mean) * max(e.srtt+4*e.rttvar, suspectLeast*e.srtt))
}
