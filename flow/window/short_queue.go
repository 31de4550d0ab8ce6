//penstock:pure

package window

import (
	"math"
	"time"
)

// waits estimates how long calls wait at a worker whose round trips vary, for [Queue.Short].
//
// A queue lengthens all round trips by the same time, so the short ones show it best: the mean
// would need six times the samples if service times are exponential. Each round trip x counts with
// the weight e^(-x/width). A wait of w multiplies every weight by e^(-w/width), so the mean weights
// with and without a queue give w:
//
//	w = width * ln(drained / now)
//
// Times are shares of the base. The drained weight therefore holds for all speeds of the worker,
// and probes refine it over minutes. Only the base has to follow when the speed changes.
type waits struct {
	drained float64 // mean weight of round trips without a queue
	n       float64 // samples in it, counted up to waitsMost
	probed  weights // of the probe under way, which may find that the base was wrong
	round   weights

	least   float64 // round trip of the round, in seconds
	network float64 // slowly rising minimum of the round trips: the network's share is at most this

	share     float64 // of the base in the mean round trip before the worker's speed changed
	following int     // rounds for which the base still follows such a change
	found     bool    // by a probe, whose mean counts too
	confirmed int     // probes in a row that agreed with the base
	empty     int     // rounds in a row that left the worker idle at times
}

// weights sums up weights.
type weights struct {
	sum float64
	n   int
}

func (w *weights) add(x float64) {
	w.sum += math.Exp(-x / waitsWidth)
	w.n++
}

const (
	waitsWidth = 0.3 // of the base: the width of the weight
	waitsLeast = 48  // samples before the drained weight counts
	waitsMost  = 800

	networkRise = 0.02 // of the difference per round

	// Calls in the network fluctuate by about their square root. That many wait to keep the worker
	// busy.
	shortTarget = 0.7
	shortExtra  = 0.1
	shortGain   = 0.4  // of the difference from the target, per round
	shortStep   = 0.25 // square roots of the window that a round changes at most, or a call
	shortEmpty  = 4    // rounds below half of the target before the window grows by a call,
	shortGrowth = 8    // or by this part of itself
	shortSlack  = 1.0  // square roots of the calls being served by which the two estimates of the queue may differ

	// A mean round trip that changes by so much from one round to the next, more than the window
	// did, is a change of the worker's speed.
	speedJitter = 5    // standard errors, and
	speedLeast  = 0.4  // of its logarithm
	speedWait   = 0.15 // of the base, the least apparent wait at a worker that has become slower
	speedRounds = 3    // rounds in which the base follows
	speedWeight = 0.3  // of a round, where a probe has measured the new base
)

func (w *waits) known() bool { return w.n >= waitsLeast }

// endProbe merges the probe into the drained weight.
func (w *waits) endProbe() {
	if p := w.probed; p.n > 0 {
		w.n = min(w.n+float64(p.n), waitsMost)
		w.drained += (p.sum/float64(p.n) - w.drained) * min(1, float64(p.n)/w.n)
	}
	w.probed = weights{}
}

// late adds a sample that was sent during a probe and came back after it.
func (w *waits) late(x float64) {
	if w.known() {
		w.probed.add(x)
		w.endProbe()
	}
}

// add adds a sample of a round: x is a share of the base, rtt in seconds.
func (w *waits) add(x, rtt float64) {
	if w.round.n == 0 || rtt < w.least {
		w.least = rtt
	}
	w.round.add(x)
}

// wait returns the mean wait of the round as a share of the base. Chance may make it negative.
func (w *waits) wait() float64 {
	return waitsWidth * math.Log(w.drained/max(w.round.sum/float64(w.round.n), 1e-300))
}

// endRound follows the least round trip.
func (w *waits) endRound() {
	if w.network == 0 || w.least < w.network {
		w.network = w.least
	}
	w.network += networkRise * (w.least - w.network)
}

// weighs reports whether the window is controlled by weights.
func (d *delay) weighs() bool {
	return d.base.short && d.base.waits.known() && !d.start && !d.base.calm()
}

// follow rescales the base if the worker's speed has changed, and reports whether it has. The queue
// is as it was, so the base keeps its share of the mean round trip.
func (d *delay) follow() bool {
	w, mean := &d.base.waits, d.round.sum/float64(d.round.n)
	if d.round.smoothed == 0 {
		return false
	}
	if w.following == 0 && d.speedChanged(mean) {
		w.share, w.following, w.found, w.confirmed = d.base.value/d.round.smoothed, speedRounds, false, 0
	}
	if w.following == 0 {
		return false
	}
	if w.following == speedRounds { // a slower worker leaves fewer calls to the network
		d.w += d.inFlight * w.network * (1/mean - 1/d.round.smoothed)
		d.w = max(1, min(d.w, d.top))
	}
	w.following--
	weight := 1 / float64(speedRounds-w.following)
	if w.found {
		weight = speedWeight
	}
	d.base.rescale(d.base.value + weight*(w.share*mean-d.base.value))
	d.round.smoothed = 0
	return true
}

// speedChanged reports whether the mean round trip of a round differs from that of the rounds
// before by more than chance and the change of the window explain.
func (d *delay) speedChanged(mean float64) bool {
	change := math.Log(mean / d.round.smoothed)
	grown := math.Log(d.round.ahead / float64(d.round.n) / d.inFlight)
	limit := max(speedLeast, speedJitter*d.round.jitter())
	wait := d.base.waits.wait() // a few very long calls change the mean, but not this
	return change > limit+max(0, grown) && wait > speedWait || change < -limit+min(0, grown) && wait < 0
}

// probeEnded lets the base follow a speed that a probe has found to be another one.
func (d *delay) probeEnded(before float64) {
	if w := &d.base.waits; d.weighs() && w.confirmed == 0 && d.round.smoothed > 0 {
		w.share, w.following, w.found = before/d.round.smoothed, speedRounds, true
	}
}

// weigh puts the queue and its target into the verdict. The mean round trip, which tells less in a
// short queue, bounds the estimate where a worker slows down all calls instead of letting some
// wait.
func (d *delay) weigh(v *verdict) {
	w := &d.base.waits
	rate := d.inFlight / v.mean
	root := math.Sqrt(d.inFlight * min(1, v.base/v.mean))
	v.queue = max(rate*v.base*w.wait(), v.queue-shortSlack*root)
	v.low = shortExtra + shortTarget*math.Sqrt(rate*min(w.network, v.base))
	v.high = v.low
}

// approach moves the window towards its target. A round trip of a wide window is several rounds, so
// each is a part of the way.
func (d *delay) approach(v *verdict) {
	w := &d.base.waits
	limit := max(1, shortStep*math.Sqrt(d.inFlight))
	gain := shortGain * min(1, mostRound/d.inFlight)
	step := max(-limit, min(limit, gain*(v.low-v.queue)))
	if w.empty++; v.queue >= v.low/2 {
		w.empty = 0
	}
	if w.empty > shortEmpty {
		step = max(1, d.w/shortGrowth)
	}
	if step < 0 || v.limited && !d.suspicious() {
		d.w = max(1, min(d.w+step, d.top))
	}
}

// shortProbeWithin returns the time between probes. It doubles while they confirm the base.
func (b *base) shortProbeWithin() time.Duration {
	return shortProbeEvery << min(b.waits.confirmed, shortProbeDoublings)
}
