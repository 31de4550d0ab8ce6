//penstock:pure

package retry

import (
	"math"
	"time"
)

// atLeast returns x, but at least the given minimum (least) and at most the largest float. For NaN
// it returns the minimum.
func atLeast(least, x float64) float64 {
	if !(x > least) {
		return least
	}
	return min(x, math.MaxFloat64)
}

// tokens is the arithmetic of TokenBucket.
type tokens struct {
	size, price, refill int
	left                int
}

// take removes the price of a retry from the tokens and returns true. If fewer tokens are left, it
// removes none and returns false.
func (t *tokens) take(price int) bool {
	if t.left < price {
		return false
	}
	t.left -= price
	return true
}

func (t *tokens) putBack(n int) { t.left += min(n, t.size-t.left) }

// windowParts is the number of slices of a sliding window. When time passes, the window drops its
// oldest slice as a whole.
const windowParts = 10

// window holds two counts over a sliding window of time, such as calls and retries.
type window struct {
	width  time.Duration // length of one slice
	newest int64         // number of the newest slice, counted from time 0
	slices [windowParts][2]int64
	sums   [2]int64
}

// advance drops the slices that are older than the window.
func (w *window) advance(now time.Duration) {
	at := int64(now / w.width)
	if at-w.newest >= windowParts {
		w.slices, w.sums, w.newest = [windowParts][2]int64{}, [2]int64{}, at
		return
	}
	for w.newest < at {
		w.newest++
		old := &w.slices[w.newest%windowParts]
		w.sums[0] -= old[0]
		w.sums[1] -= old[1]
		*old = [2]int64{}
	}
}

func (w *window) add(now time.Duration, which int, n int64) {
	w.advance(now)
	w.slices[w.newest%windowParts][which] += n
	w.sums[which] += n
}

// takeOut undoes the count of one attempt: it takes one call or one retry out of the newest slice.
// If the slice has none, because the window has moved on, takeOut does nothing.
func (w *window) takeOut(now time.Duration, which int) {
	if w.advance(now); w.slices[w.newest%windowParts][which] > 0 {
		w.add(now, which, -1)
	}
}

// The counts of a ratio.
const (
	calls = iota
	retries
)

// ratio is the arithmetic of Ratio.
type ratio struct {
	share float64
	floor float64 // retries per window that are allowed regardless of the calls
	seen  window
}

func (r *ratio) allow(now time.Duration, retry bool) bool {
	if !retry {
		r.seen.add(now, calls, 1)
		return true
	}
	r.seen.advance(now)
	if float64(r.seen.sums[retries]+1) > r.share*float64(r.seen.sums[calls])+r.floor {
		return false
	}
	r.seen.add(now, retries, 1)
	return true
}

// inFlight is the arithmetic of InFlight.
type inFlight struct {
	share           float64
	floor           int
	active, retries int
}

func (f *inFlight) allow(retry bool) bool {
	if retry {
		share := int(min(f.share*float64(f.active+1), math.MaxInt32))
		if f.retries >= max(f.floor, share) {
			return false
		}
		f.retries++
	}
	f.active++
	return true
}

func (f *inFlight) end(retry bool) {
	f.active--
	if retry {
		f.retries--
	}
}

// The counts of a throttle.
const (
	requests = iota
	accepts
)

// throttle is the arithmetic of Throttle: the chapter "Handling Overload" of Google's SRE book
// gives the formula.
type throttle struct {
	k    float64
	seen window
}

// allow counts the request. It refuses if draw, uniform in [0, 1), is below the probability of
// refusal.
func (t *throttle) allow(now time.Duration, draw float64) bool {
	t.seen.advance(now)
	sent, accepted := float64(t.seen.sums[requests]), float64(t.seen.sums[accepts])
	t.seen.add(now, requests, 1)
	return draw >= max(0, (sent-t.k*accepted)/(sent+1))
}
