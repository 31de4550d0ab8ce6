//penstock:pure

package table

import "time"

// horizon finds the position up to which a partition may be read. Rows after it must wait, because
// an open transaction may still write rows before them. The horizon collects observations: each is
// the last row that was visible at some time. As soon as no transaction can write rows before this
// row any more, the partition may be read up to it.
type horizon struct {
	waiting []observation // ascending by last and at
}

// maxWaiting bounds the observations (last visible rows) that a horizon collects. If there are
// maxWaiting of them, a new observation replaces the newest of the collected ones.
const maxWaiting = 64

// add adds an observation, the last row that is visible now. It does nothing if the newest
// collected observation has the same row or a later one: waiting for that observation is enough.
func (h *horizon) add(o observation) {
	if o.last == "" {
		return
	}
	if n := len(h.waiting); n > 0 {
		newest := &h.waiting[n-1]
		switch {
		case o.last <= newest.last:
			return // the older observation allows as much, and earlier
		case n == maxWaiting:
			*newest = o
			return
		}
	}
	h.waiting = append(h.waiting, o)
}

// pass returns the key up to which rows may be read, or "" if no further ones may be read. Each
// waiting observation is the last row that was visible at some time. n is the number of oldest
// observations that have passed: no transaction can add rows before these rows any more. Of these,
// pass removes the ones that are at least lag old. The returned key is that of the row in the
// newest of them.
func (h *horizon) pass(n int, now, lag time.Duration) (last string) {
	for n > 0 && len(h.waiting) > 0 && now-h.waiting[0].at >= lag {
		last = h.waiting[0].last
		h.waiting = h.waiting[1:]
		n--
	}
	return last
}

// due returns the time until the oldest observation is lag old, so that rows up to it may be read.
// It returns false if there is no observation.
func (h *horizon) due(now, lag time.Duration) (time.Duration, bool) {
	if len(h.waiting) == 0 {
		return 0, false
	}
	return max(0, h.waiting[0].at+lag-now), true
}
