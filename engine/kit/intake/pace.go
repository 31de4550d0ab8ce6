package intake

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Pace measures the bytes per second that routes settle (deliver, dead-letter or drop). A source
// uses it to tell refused senders when to retry. The zero value is ready to use. A Pace is safe for
// concurrent use.
type Pace struct {
	mu    sync.Mutex // guards the fields below
	bytes float64    // bytes settled in about the last paceMemory, decayed until since
	since time.Time
}

const (
	// paceMemory is the time over which the rate is averaged.
	paceMemory = 10 * time.Second
	// The minimum and maximum of RetryAfter before jitter, and its value before jitter if no rate
	// was measured.
	leastRetry   = time.Second
	mostRetry    = 50 * time.Second
	unknownRetry = 15 * time.Second
)

// decay reduces p.bytes linearly with the time since the last call. If half of the duration
// paceMemory has passed since that call, half of the bytes remain. After all of it, none remain.
// The caller holds p.mu.
func (p *Pace) decay(now time.Time) {
	if past := now.Sub(p.since); past > 0 && !p.since.IsZero() {
		p.bytes *= max(0, 1-float64(past)/float64(paceMemory))
	}
	p.since = now
}

// Settled adds the given number of bytes, which routes have settled at the time now, to the
// measurement.
func (p *Pace) Settled(bytes int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decay(now)
	p.bytes += float64(bytes)
}

// RetryAfter estimates the time in which the routes settle the bytes that the intake holds (held)
// at the measured rate. Example: if 1 MB per second was settled, 20 MB take 20s. If no rate was
// measured, the estimate is 15s. The estimate is limited to between 1s and 50s and then varied by
// up to 20 percent (jitter). The result is rounded to whole seconds and at least 1s.
func (p *Pace) RetryAfter(held int64, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decay(now)
	wait := float64(unknownRetry)
	if rate := p.bytes / paceMemory.Seconds(); rate > 0 {
		wait = float64(held) / rate * float64(time.Second)
	}
	wait = min(max(wait, float64(leastRetry)), float64(mostRetry))
	wait *= 0.8 + 0.4*rand.Float64()
	return max(time.Duration(wait).Round(time.Second), leastRetry)
}
