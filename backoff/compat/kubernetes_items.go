package compat

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// KubernetesExponential is the wait of client-go's ItemExponentialFailureRateLimiter: base * 2^n,
// at most Max.
//
// [KubernetesExponentialDefaults] has the settings of DefaultTypedControllerRateLimiter.
//
// Quirks, both with Compat only: With a Base of 1 ns and n = 63, the wait is 2^63 ns, one more than
// the largest int64. The original compares both numbers as floats, and as floats they are equal. So
// it does not cut the wait to Max, and converts it to the lowest int64. With a Base of 0, the wait
// is 0 times infinity from n = 1024 on. This is NaN, which also becomes the lowest int64.
type KubernetesExponential struct {
	Base   time.Duration // 0 means that every wait is 0
	Max    time.Duration // 0 means that every wait is 0
	Compat bool
}

// KubernetesExponentialDefaults returns the settings of DefaultTypedControllerRateLimiter: 5 ms, at
// most 1000 s.
func KubernetesExponentialDefaults() KubernetesExponential {
	return KubernetesExponential{Base: 5 * time.Millisecond, Max: 1000 * time.Second}
}

func (p KubernetesExponential) wait(n uint32) time.Duration {
	x := float64(p.Base) * math.Pow(2, float64(n))
	switch {
	case p.Compat && x > math.MaxInt64:
		return p.Max
	case p.Compat:
		return min(time.Duration(amd64Long(x)), p.Max)
	}
	return min(duration(x, false), max(p.Max, 0))
}

// Next implements backoff.Policy.
func (p KubernetesExponential) Next(s backoff.State,
	_ rand.Source) (time.Duration, backoff.State, bool) {
	d := p.wait(s.N)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p KubernetesExponential) Bounds(n int) (lowest, mean, highest time.Duration) {
	d := p.wait(step(n))
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p KubernetesExponential) Validate() error { return nil }

// KubernetesFastSlow is the wait of client-go's ItemFastSlowRateLimiter: Fast for the first MaxFast
// failures, then Slow.
type KubernetesFastSlow struct {
	Fast, Slow time.Duration
	MaxFast    int
	Compat     bool // whether negative settings give negative waits, as in the original
}

// Next implements backoff.Policy.
func (p KubernetesFastSlow) Next(s backoff.State,
	_ rand.Source) (time.Duration, backoff.State, bool) {
	d := p.Slow
	if int64(s.N) < int64(p.MaxFast) {
		d = p.Fast
	}
	d = clamp(d, p.Compat)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p KubernetesFastSlow) Bounds(n int) (lowest, mean, highest time.Duration) {
	d, _, _ := p.Next(backoff.State{N: step(n)}, nil)
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p KubernetesFastSlow) Validate() error { return nil }

// KubernetesItems counts failures for each item, as the rate limiters of client-go's work queues
// do. It is safe for concurrent use.
//
// Quirk: the original keeps every item until Forget, without a limit. Here MaxItems is the limit.
type KubernetesItems[K comparable] struct {
	Policy backoff.Policy // such as KubernetesExponential; nil means that every wait is 0
	// MaxItems is the maximum number of items kept. An item beyond it waits as after its first
	// failure. 0 means 100,000.
	MaxItems int

	mu     sync.Mutex
	states map[K]backoff.State // guarded by mu
}

// When counts a failure of item and returns its wait, or 0 if Policy gives up.
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

// Forget resets the failures of item.
func (l *KubernetesItems[K]) Forget(item K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.states, item)
}

// NumRequeues returns the number of failures of item since the last Forget.
func (l *KubernetesItems[K]) NumRequeues(item K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.states[item].N)
}

// KubernetesFlow is the wait of an item in client-go's flowcontrol.Backoff: twice the previous
// wait, plus a jitter of U[0, 1) * Jitter times the previous wait, at most Max. The first wait is
// Initial plus a jitter of U[0, 1) * Jitter times Initial.
//
// Quirks: The jitter compounds, because each wait grows from the previous draw. The first wait is
// not cut to Max. A failure more than 2 * Max after the previous one counts as the first. If Max is
// above half of the largest int64, 2 * Max wraps, and every failure counts as the first. The
// doubling wraps, too (both with Compat only).
type KubernetesFlow struct {
	Initial, Max time.Duration
	Jitter       float64 // 0 or less means none
	Compat       bool
}

// Failed returns the wait after a failure. The parameter gap is the time since the previous
// failure.
func (p KubernetesFlow) Failed(s backoff.State, gap time.Duration,
	src rand.Source) (time.Duration, backoff.State) {
	random := 0.0
	if p.Jitter > 0 {
		random = uniform(src)
	}
	var d time.Duration
	if s.N == 0 || gap > p.sum(p.Max, p.Max) {
		d = p.first(random)
	} else {
		d = p.grown(s.Prev, random)
	}
	return d, s.After(d)
}

// sum returns a + b. Without Compat, results out of range become the nearest end of int64.
func (p KubernetesFlow) sum(a, b time.Duration) time.Duration {
	if p.Compat {
		return a + b
	}
	return plus(a, b)
}

func (p KubernetesFlow) jitter(d time.Duration, random float64) time.Duration {
	if p.Jitter <= 0 {
		return 0
	}
	return duration(float64(float64(random*p.Jitter)*float64(d)), p.Compat)
}

func (p KubernetesFlow) first(random float64) time.Duration {
	return clamp(p.sum(p.Initial, p.jitter(p.Initial, random)), p.Compat)
}

func (p KubernetesFlow) grown(last time.Duration, random float64) time.Duration {
	return clamp(min(p.sum(p.sum(last, last), p.jitter(last, random)), p.Max), p.Compat)
}

// Next implements backoff.Policy, like Failed with a gap of 0.
func (p KubernetesFlow) Next(s backoff.State,
	src rand.Source) (time.Duration, backoff.State, bool) {
	d, s := p.Failed(s, 0, src)
	return d, s, true
}

// Bounds implements backoff.Bounder, for failures that follow each other at once, as in Next. The
// mean is computed from the mean of the previous wait, and is too high if some draws are cut to
// Max.
func (p KubernetesFlow) Bounds(n int) (lowest, mean, highest time.Duration) {
	end := float64(max(p.Initial, p.Max)) * (2 + max(p.Jitter, 0)) // no sum is higher
	if p.Compat && (p.Initial < 0 || p.Max < 0 || !(end < math.MaxInt64)) {
		return anything()
	}
	lowest, mean, highest = p.first(0), p.first(.5), p.first(1)
	for range min(step(n), 70) {
		lowest, mean, highest = p.grown(lowest, 0), p.grown(mean, .5), p.grown(highest, 1)
	}
	return lowest, mean, highest
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p KubernetesFlow) Validate() error { return nil }
