package compat

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// KubernetesExponential is the wait of client-go's ItemExponentialFailureRateLimiter: base * 2^n, at most Max.
//
// Quirk: with a Max of the highest int64 the original lets 2^63 pass its comparison of floats and converts it to the
// lowest int64 (Compat only; base 1 ns, n = 63).
type KubernetesExponential struct {
	Base   time.Duration // as it is: 0 waits 0; the default of client-go is 5 ms
	Max    time.Duration // as it is; the default of client-go is 1000 s
	Compat bool
}

func (p KubernetesExponential) wait(n uint32) time.Duration {
	x, d := float64(p.Base)*math.Exp2(float64(n)), p.Max
	if x < math.MaxInt64 || p.Compat && x == math.MaxInt64 { // the float is 2^63
		d = min(duration(x, true), p.Max)
	}
	if p.Compat {
		return d
	}
	return max(d, 0)
}

// Next implements backoff.Policy.
func (p KubernetesExponential) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	d := p.wait(s.N)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p KubernetesExponential) Bounds(n int) (lowest, mean, highest time.Duration) {
	d := p.wait(step(n))
	return d, d, d
}

// Validate implements backoff.Validator: the original takes everything.
func (p KubernetesExponential) Validate() error { return nil }

// KubernetesFastSlow is the wait of client-go's ItemFastSlowRateLimiter: Fast for the first MaxFast failures, then Slow.
type KubernetesFastSlow struct {
	Fast, Slow time.Duration
	MaxFast    int
}

// Next implements backoff.Policy.
func (p KubernetesFastSlow) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	d := max(p.Slow, 0)
	if int64(s.N) < int64(p.MaxFast) {
		d = max(p.Fast, 0)
	}
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p KubernetesFastSlow) Bounds(n int) (lowest, mean, highest time.Duration) {
	d, _, _ := p.Next(backoff.State{N: step(n)}, nil)
	return d, d, d
}

// Validate implements backoff.Validator: the original takes everything.
func (p KubernetesFastSlow) Validate() error { return nil }

// KubernetesItems counts failures for each item, as the rate limiters of client-go's work queues do. It is safe for
// concurrent use.
//
// Quirk: an item is remembered until Forget, however many there are. MaxItems bounds them here.
type KubernetesItems[K comparable] struct {
	Policy   backoff.Policy // KubernetesExponential, KubernetesFastSlow, or any other; nil waits 0
	MaxItems int            // items remembered; a further one waits as after its first failure. 0 means 100,000

	mu     sync.Mutex
	states map[K]backoff.State // guarded by mu
}

// When counts a failure of item and returns how long it has to wait.
func (l *KubernetesItems[K]) When(item K) time.Duration {
	if l.Policy == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, known := l.states[item]
	d, next, ok := l.Policy.Next(s, nil)
	if !ok {
		return 0
	}
	limit := l.MaxItems
	if limit <= 0 {
		limit = 100_000
	}
	if known || len(l.states) < limit {
		if l.states == nil {
			l.states = map[K]backoff.State{}
		}
		l.states[item] = next
	}
	return d
}

// Forget starts item over.
func (l *KubernetesItems[K]) Forget(item K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.states, item)
}

// NumRequeues returns the failures of item since it was last forgotten.
func (l *KubernetesItems[K]) NumRequeues(item K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.states[item].N)
}

// KubernetesFlow is the wait of an item in client-go's flowcontrol.Backoff: the wait before, doubled, plus U[0, 1) *
// Jitter of it, at most Max; the first is Initial plus its jitter.
//
// Quirks: the jitter compounds, for the next wait grows from what was drawn; the first is not cut to Max. A failure that
// comes more than 2 Max after the one before counts as the first.
type KubernetesFlow struct {
	Initial, Max time.Duration
	Jitter       float64 // 0 means none
}

// Failed returns the wait after a failure that came gap after the one before.
func (p KubernetesFlow) Failed(s backoff.State, gap time.Duration, src rand.Source) (time.Duration, backoff.State) {
	random := 0.0
	if p.Jitter > 0 {
		random = uniform(src)
	}
	last, twice := max(s.Prev, 0), p.Max > 0 && gap > plus(p.Max, p.Max) || p.Max <= 0 && gap > 0
	var d time.Duration
	if s.N == 0 || twice {
		d = p.first(random)
	} else {
		d = p.grown(last, random)
	}
	return d, s.After(d)
}

func (p KubernetesFlow) first(random float64) time.Duration {
	d := max(p.Initial, 0)
	return plus(d, duration(float64(float64(random*p.Jitter)*float64(d)), false))
}

func (p KubernetesFlow) grown(last time.Duration, random float64) time.Duration {
	d := plus(plus(last, last), duration(float64(float64(random*p.Jitter)*float64(last)), false))
	return min(d, max(p.Max, 0))
}

// Next implements backoff.Policy: as Failed while nothing is forgotten.
func (p KubernetesFlow) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	d, s := p.Failed(s, 0, src)
	return d, s, true
}

// Bounds implements backoff.Bounder, for failures of which none is forgotten. The mean follows that of the wait before,
// and is too high where a part of the draws is cut to Max.
func (p KubernetesFlow) Bounds(n int) (lowest, mean, highest time.Duration) {
	random := 0.0
	if p.Jitter > 0 {
		random = 1
	}
	lowest, mean, highest = p.first(0), p.first(random/2), p.first(random)
	for range min(step(n), 70) {
		lowest, mean, highest = p.grown(lowest, 0), p.grown(mean, random/2), p.grown(highest, random)
	}
	return lowest, mean, highest
}

// Validate implements backoff.Validator: the original takes everything.
func (p KubernetesFlow) Validate() error { return nil }
