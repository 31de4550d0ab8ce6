//penstock:pure

package retry

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/internal/recent"
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

// The counts of a ratio.
const (
	calls = iota
	retries
)

// ratio is the arithmetic of Ratio.
type ratio struct {
	share float64
	floor float64 // retries per window that are allowed regardless of the calls
	seen  recent.Window
}

func (r *ratio) allow(now time.Duration, retry bool) bool {
	if !retry {
		r.seen.Add(now, calls, 1)
		return true
	}
	seen := r.seen.Sums(now)
	if float64(seen[retries]+1) > r.share*float64(seen[calls])+r.floor {
		return false
	}
	r.seen.Add(now, retries, 1)
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
	seen recent.Window
}

// allow counts the request. It refuses if draw, uniform in [0, 1), is below the probability of
// refusal.
func (t *throttle) allow(now time.Duration, draw float64) bool {
	seen := t.seen.Sums(now)
	sent, accepted := float64(seen[requests]), float64(seen[accepts])
	t.seen.Add(now, requests, 1)
	return draw >= max(0, (sent-t.k*accepted)/(sent+1))
}
