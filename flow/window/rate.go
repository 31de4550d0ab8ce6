//penstock:pure

package window

import (
	"math"
	"time"
)

// Rate is the window of BBR's model: the worker's delivery rate times the round trip of the drained
// worker, plus a quarter of this product, plus two batches. The rate is the second highest rate of
// the last ten rounds, because with exponential service times the highest rate of a few rounds is
// far above the mean. Rate is experimental. Use [Queue] instead. The zero value is usable.
type Rate struct {
	Initial int // batches; 0 means 1
	Max     int // batches; 0 means 1000
}

// Name returns "rate".
func (Rate) Name() string { return "rate" }

// Most returns Max.
func (r Rate) Most() int { return r.Max }

// Validate returns an error if r is invalid.
func (r Rate) Validate() error { return validRange("rate", r.Initial, r.Max) }

// New returns a window for one worker.
func (r Rate) New() Window {
	return &rate{delay: newDelay(r.Initial, r.Max, rateCut)}
}

const (
	rateRounds = 10
	rateGain   = 1.25
	rateExtra  = 2
	rateCut    = 0.5
	wholeSlack = 1e-6 // tolerance for integers, because times are rounded to seconds
)

type rate struct {
	delay
	rates [rateRounds]float64 // rates of the last rounds, in deliveries per second
	next  int
}

func (r *rate) OnSample(s Sample) {
	if !r.sample(&s) {
		return
	}
	v := r.endRound()
	if x := r.round.rate(s.Now); v.limited || x > r.bandwidth() {
		r.rates[r.next] = x
		r.next = (r.next + 1) % rateRounds
	}
	if r.startup.on {
		r.started(v, s.Now)
	} else if bw := r.bandwidth(); bw > 0 {
		r.w = min(max(1, math.Floor(bw*v.base*rateGain+wholeSlack)+rateExtra), r.top)
	}
	v.after = r.w
	r.nextRound()
}

// bandwidth returns the second highest rate of the last rounds.
func (r *rate) bandwidth() float64 {
	first, second := 0.0, 0.0
	for _, x := range r.rates {
		switch {
		case x > first:
			first, second = x, first
		case x > second:
			second = x
		}
	}
	if second == 0 {
		return first
	}
	return second
}

func (r *rate) Reset(now time.Duration) {
	r.delay.Reset(now)
	r.rates = [rateRounds]float64{}
}
