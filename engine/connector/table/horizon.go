//penstock:pure

package table

import "time"

// horizon limits the reading of a partition. Rows beyond the horizon may still be preceded by rows
// of open transactions. A horizon collects observations of the last row. An observation counts when
// no row can appear before its row any more.
type horizon struct {
	waiting []observation // ascending by last and at
}

// maxWaiting bounds the pending observations. If there are as many, the newest one is replaced.
const maxWaiting = 64

// add adds an observation.
func (h *horizon) add(o observation) {
	if o.last == "" {
		return
	}
	if n := len(h.waiting); n > 0 {
		newest := &h.waiting[n-1]
		switch {
		case o.last <= newest.last:
			return // the older observation has the same effect earlier
		case n == maxWaiting:
			*newest = o
			return
		}
	}
	h.waiting = append(h.waiting, o)
}

// pass treats the first n observations as passed, except those younger than lag. It returns the
// last row of the newest one that counts, or "".
func (h *horizon) pass(n int, now, lag time.Duration) (last string) {
	for n > 0 && len(h.waiting) > 0 && now-h.waiting[0].at >= lag {
		last = h.waiting[0].last
		h.waiting = h.waiting[1:]
		n--
	}
	return last
}

// due returns the time until lag lets the oldest observation pass; false if none is pending.
func (h *horizon) due(now, lag time.Duration) (time.Duration, bool) {
	if len(h.waiting) == 0 {
		return 0, false
	}
	return max(0, h.waiting[0].at+lag-now), true
}
