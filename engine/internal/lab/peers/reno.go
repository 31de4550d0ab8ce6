//penstock:pure

package peers

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// Reno is TCP's congestion window (RFC 5681), counted in batches. In slow start, the window grows
// by one for each ack until it reaches ssthresh. Then it grows by one for each window of acks. A
// nack shows that the receiver is alive, so it only halves the window, as in fast retransmit. A
// timeout reduces the window to one.
type Reno struct{}

// Name returns "reno".
func (Reno) Name() string { return "reno" }

// Validate returns nil, because there are no options.
func (Reno) Validate() error { return nil }

// New returns a window for a worker.
func (Reno) New() window.Window { return &reno{window: renoInitial, threshold: math.Inf(1)} }

const (
	renoInitial = 3 // RFC 5681 for segments between 1095 and 2190 bytes
	renoLeast   = 2 // minimum of ssthresh
	renoMost    = 100_000
)

type reno struct {
	simple
	window, threshold float64
	roundTrip         time.Duration
	deaf              time.Duration // losses before this time belong to the previous cut
}

func (r *reno) Limit() float64 { return max(1, math.Floor(r.window)) }

func (r *reno) OnSample(s window.Sample) {
	r.roundTrip = s.RoundTrip
	r.state = window.Normal
	if s.Late {
		return
	}
	if r.window < r.threshold {
		r.window++
	} else {
		r.window += 1 / r.window
	}
	r.window = min(r.window, renoMost)
}

func (r *reno) OnTimeout(now time.Duration, _ float64) {
	if r.cut(now) {
		r.window = 1
	}
}

func (r *reno) OnNack(now time.Duration, _ float64) {
	if r.cut(now) {
		r.window = r.threshold
	}
}

// cut handles a lost attempt. It sets the threshold to half of the window and returns true, and the
// caller then reduces the window. But if the window was already reduced within the last round trip,
// the losses have the same cause, and cut only returns false.
func (r *reno) cut(now time.Duration) bool {
	r.state = window.Busy
	if now < r.deaf {
		return false
	}
	r.threshold = max(r.window/2, renoLeast)
	r.deaf = now + r.roundTrip
	return true
}

// Reset sets the restart window that RFC 5681 prescribes after an idle time.
func (r *reno) Reset(time.Duration) { r.window = min(renoInitial, r.window) }

func (r *reno) Reason() string {
	return fmt.Sprintf("congestion window %.4g, slow start threshold %.4g", r.window, r.threshold)
}
