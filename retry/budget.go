//penstock:pure

package retry

import "time"

// Result is how an attempt that a Budget granted ended.
type Result uint8

// How an attempt ended.
const (
	NotMade Result = iota // the sequence ended while it waited for the attempt
	Failed                // it failed
	Served                // the service did what was asked, or answered a poll
)

// Budget limits the attempts of all sequences that share it, so that a service that is down or slow does not get
// several times its load in retries. A Budget is safe for concurrent use.
type Budget interface {
	// Take asks for attempt n of a sequence (the first is 1); for a retry it is called before the wait, and false
	// stops the sequence with ErrBudget. cost is Decision.Cost; 0 leaves the price to the budget.
	Take(n, cost int) bool
	// Give is called once for every attempt that was granted, with the same n and cost, when it has ended.
	Give(n, cost int, r Result)
}

// tokens is the arithmetic of TokenBucket: what is left of size.
type tokens struct {
	size, price, refill int
	left                int
}

func (t *tokens) take(n, cost int) bool {
	if n <= 1 {
		return true
	}
	if cost = t.cost(cost); t.left < cost {
		return false
	}
	t.left -= cost
	return true
}

func (t *tokens) give(n, cost int, r Result) {
	back := 0
	switch {
	case r == Served && n <= 1:
		back = t.refill
	case r == Served:
		back = t.cost(cost) + t.refill
	case r == NotMade && n > 1:
		back = t.cost(cost)
	}
	t.left = min(t.left+back, t.size)
}

func (t *tokens) cost(cost int) int {
	if cost > 0 {
		return cost
	}
	return t.price
}

// windowParts is how many parts a sliding window has: it forgets its oldest tenth at a time.
const windowParts = 10

// tally counts two things over a sliding window.
type tally struct {
	width time.Duration // of one slice
	head  int64         // the slice that is counted now, from the start of time
	parts [windowParts][2]int64
	sums  [2]int64
}

// forward forgets what is older than the window at now.
func (t *tally) forward(now time.Duration) {
	at := int64(now / t.width)
	if at-t.head >= windowParts {
		t.parts, t.sums, t.head = [windowParts][2]int64{}, [2]int64{}, at
		return
	}
	for t.head < at {
		t.head++
		old := &t.parts[t.head%windowParts]
		t.sums[0] -= old[0]
		t.sums[1] -= old[1]
		*old = [2]int64{}
	}
}

func (t *tally) add(now time.Duration, which int, n int64) {
	t.forward(now)
	t.parts[t.head%windowParts][which] += n
	t.sums[which] += n
}

// What a ratio counts.
const (
	calls = iota
	retries
)

// ratio is the arithmetic of Ratio.
type ratio struct {
	share float64
	floor float64 // retries that a whole window may hold in any case
	seen  tally
}

func (b *ratio) take(now time.Duration, n int) bool {
	if n <= 1 {
		b.seen.add(now, calls, 1)
		return true
	}
	b.seen.forward(now)
	if float64(b.seen.sums[retries]+1) > b.share*float64(b.seen.sums[calls])+b.floor {
		return false
	}
	b.seen.add(now, retries, 1)
	return true
}

func (b *ratio) give(now time.Duration, n int, r Result) {
	if n > 1 && r == NotMade {
		b.seen.forward(now)
		if b.seen.sums[retries] > 0 && b.seen.parts[b.seen.head%windowParts][retries] > 0 {
			b.seen.add(now, retries, -1)
		}
	}
}

// inFlight is the arithmetic of InFlight.
type inFlight struct {
	share          float64
	floor          int
	active, repeat int
}

func (b *inFlight) take(n int) bool {
	if n > 1 {
		if b.repeat >= max(b.floor, int(b.share*float64(b.active+1))) {
			return false
		}
		b.repeat++
	}
	b.active++
	return true
}

func (b *inFlight) give(n int) {
	b.active--
	if n > 1 {
		b.repeat--
	}
}

// What a throttle counts.
const (
	requests = iota
	accepts
)

// throttle is the arithmetic of Throttle: chapter "Handling Overload" of the SRE book.
type throttle struct {
	k    float64
	seen tally
}

// take counts the request and refuses it where luck, uniform in [0, 1), falls below the chance of refusal.
func (b *throttle) take(now time.Duration, luck float64) bool {
	b.seen.forward(now)
	asked, taken := float64(b.seen.sums[requests]), float64(b.seen.sums[accepts])
	b.seen.add(now, requests, 1)
	return luck >= max(0, (asked-b.k*taken)/(asked+1))
}

func (b *throttle) give(now time.Duration, r Result) {
	switch r {
	case Served:
		b.seen.add(now, accepts, 1)
	case NotMade:
		// It never asked the service: the request is taken out again if it is still in the running slice.
		if b.seen.forward(now); b.seen.parts[b.seen.head%windowParts][requests] > 0 {
			b.seen.add(now, requests, -1)
		}
	case Failed:
	}
}
