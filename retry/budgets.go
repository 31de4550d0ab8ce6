package retry

import (
	"math/rand/v2"
	"sync"
	"time"
)

// TokenBucket is the budget of the AWS SDKs: size tokens, full at the start. A retry takes price of them, or its
// Decision.Cost; a success puts back refill and, if it was a retry, what that retry took. Time fills nothing, so that
// a service that answers nobody gets first attempts only. AWS uses (500, 5, 1), in its 2026 mode (500, 14, 1) with
// a cost of 5 for throttled calls. Values below 1 count as 1.
func TokenBucket(size, price, refill int) Budget {
	size = max(size, 1)
	return &tokenBucket{tokens: tokens{size: size, price: max(price, 1), refill: max(refill, 1), left: size}}
}

type tokenBucket struct {
	mu sync.Mutex
	tokens
}

// Take implements Budget.
func (b *tokenBucket) Take(n, cost int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(n, cost)
}

// Give implements Budget.
func (b *tokenBucket) Give(n, cost int, r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(n, cost, r)
}

// Ratio is the budget of Finagle, Linkerd and tower: over the window, retries are at most share of the calls, and
// perSecond more in any case, without which a client of few calls could never retry. Finagle uses (0.2, 10, 10 s).
// A window of 0 or less means 10 s.
func Ratio(share, perSecond float64, window time.Duration) Budget {
	if window <= 0 {
		window = 10 * time.Second
	}
	r := ratio{share: max(share, 0), floor: max(perSecond, 0) * window.Seconds()}
	r.seen.width = max(window/windowParts, 1)
	return &ratioBudget{start: time.Now(), ratio: r}
}

type ratioBudget struct {
	start time.Time
	mu    sync.Mutex
	ratio
}

// Take implements Budget.
func (b *ratioBudget) Take(n, _ int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(time.Since(b.start), n)
}

// Give implements Budget.
func (b *ratioBudget) Give(n, _ int, r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(time.Since(b.start), n, r)
}

// InFlight is the budget of Envoy: the retries that run or wait now are at most share of all calls that do, and floor
// in any case. Envoy uses (0.2, 3).
func InFlight(share float64, floor int) Budget {
	return &inFlightBudget{inFlight: inFlight{share: max(share, 0), floor: max(floor, 0)}}
}

type inFlightBudget struct {
	mu sync.Mutex
	inFlight
}

// Take implements Budget.
func (b *inFlightBudget) Take(n, _ int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(n)
}

// Give implements Budget.
func (b *inFlightBudget) Give(n, _ int, _ Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(n)
}

// Throttle is the adaptive throttling of the SRE book: it refuses attempts, first ones too, with the chance
// max(0, (requests - k*accepts) / (requests + 1)) over two minutes, so that a client sends at most about k times what
// the service accepts. The book uses k = 2; below 1 counts as 1. src is the source of chance, used under a lock; nil
// means the runtime's.
func Throttle(k float64, src rand.Source) Budget {
	if src == nil {
		src = runtimeSource{}
	}
	b := &throttleBudget{start: time.Now(), chance: rand.New(src), throttle: throttle{k: max(k, 1)}}
	b.seen.width = 2 * time.Minute / windowParts
	return b
}

type throttleBudget struct {
	start time.Time
	mu    sync.Mutex
	// chance is used under mu.
	chance *rand.Rand
	throttle
}

// Take implements Budget.
func (b *throttleBudget) Take(_, _ int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(time.Since(b.start), b.chance.Float64())
}

// Give implements Budget.
func (b *throttleBudget) Give(_, _ int, r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(time.Since(b.start), r)
}
