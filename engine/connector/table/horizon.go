//penstock:pure

package table

import "time"

// horizon is up to where a partition may be read: rows further on may still be preceded by some
// whose transactions are open. It takes observations of the last row; each counts when nothing can
// precede it any more.
type horizon struct {
	waiting []observation // ascending by last and at
}

// maxWaiting bounds the observations that wait. When there are as many, the newest takes the place
// of the one before it.
const maxWaiting = 64

// see adds an observation.
func (h *horizon) see(o observation) {
	if o.last == "" {
		return
	}
	if n := len(h.waiting); n > 0 {
		newest := &h.waiting[n-1]
		switch {
		case o.last <= newest.last:
			return // the older one says as much, and earlier
		case n == maxWaiting:
			*newest = o
			return
		}
	}
	h.waiting = append(h.waiting, o)
}

// pass takes the first n observations as passed, but for those younger than lag, and returns the
// last row of the newest that counts; "": none does yet.
func (h *horizon) pass(n int, now, lag time.Duration) (last string) {
	for n > 0 && len(h.waiting) > 0 && now-h.waiting[0].at >= lag {
		last = h.waiting[0].last
		h.waiting = h.waiting[1:]
		n--
	}
	return last
}

// due is how long until lag lets the oldest observation pass; false: none waits.
func (h *horizon) due(now, lag time.Duration) (time.Duration, bool) {
	if len(h.waiting) == 0 {
		return 0, false
	}
	return max(0, h.waiting[0].at+lag-now), true
}
