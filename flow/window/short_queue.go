//penstock:pure

package window

import (
	"cmp"
	"math"
	"time"
)

// waits estimates how long calls wait at a worker with varying round trips, for [Queue.Short].
//
// A queue lengthens all round trips by the same time, so the short ones show it best. With
// exponential service times, an estimate from the mean would need six times the samples. Each round
// trip x has the weight e^(-x/width). A wait of w multiplies every weight by e^(-w/width). So the
// wait is
//
//	w = width * ln(drained / now)
//
// where drained is the mean weight without a queue, and now the mean weight of the current round.
// Times are relative to the base. After a change of the worker's speed, the base changes, too. At
// first, rescale only corrects drained for the changed share of the network in the base. Then
// probes measure it again over minutes.
type waits struct {
	drained float64 // mean weight of round trips without a queue
	tilted  float64 // mean of their round trips multiplied by their weights
	n       float64 // samples in drained and tilted, counted up to maxWaits
	probed  weights // weights of the current probe, which may find that the base was wrong
	round   weights

	minRoundTrip float64 // minimum round trip of the round, in seconds
	network      float64 // slowly rising minimum round trip, a bound of the network's share

	share     float64 // share of the base in the mean round trip before the speed changed
	following int     // rounds for which the base still follows such a change
	// meanBefore is the mean round trip before the round in which the speed may have changed. It is
	// 0 if there is no such round.
	meanBefore   float64
	foundByProbe bool // a probe has found the change of speed, and its mean counts, too
	confirmed    int  // consecutive probes that agreed with the base
	emptyRounds  int  // consecutive rounds in which the worker idled at times
}

// weights holds sums over the round trips of a round or a probe. Each round trip has a weight,
// which is higher if it is short (see [waits]). The mean weight is computed from the sums.
type weights struct {
	sum  float64
	tilt float64 // sum of round trips multiplied by their weights
	n    int
}

func (w *weights) add(x float64) {
	weight := math.Exp(-x / waitsWidth)
	w.sum += weight
	w.tilt += x * weight
	w.n++
}

const (
	waitsWidth = 0.3 // width of the weight, as a share of the base
	minWaits   = 48  // samples before the drained weight is used
	maxWaits   = 800

	networkRise = 0.02 // share of the difference by which the network's estimate rises per round
	maxNetwork  = 0.5  // maximum of that estimate, as a share of the base

	// The number of calls in the network fluctuates by about its square root. So a queue of about
	// that length keeps the worker busy.
	shortTarget = 0.7
	shortExtra  = 0.1
	shortGain   = 0.4  // share of the difference from the target by which a round moves the window
	shortStep   = 0.25 // maximum change per round, in square roots of the window; at least one call
	shortEmpty  = 4    // rounds below half of the target before the window grows by a call,
	shortGrowth = 8    // or by this fraction of itself
	// There are two estimates of the queue: from the weights (see [waits]), and from the mean round
	// trip. shortSlack is the allowed difference between them, as a multiple of the square root of
	// the number of calls being served.
	shortSlack = 1.0

	// The worker's speed has changed if the mean round trip of a round differs from that of earlier
	// rounds, and the change of the window does not explain this. The logarithm of the mean must
	// have changed by more than minSpeedChange, and by more than speedJitter standard errors.
	speedJitter    = 5
	minSpeedChange = 0.4
	speedWait      = 0.15 // minimum apparent wait at a slower worker, as a share of the base
	speedRounds    = 3    // rounds in which the base follows a change of the speed
	speedWeight    = 0.3  // weight of a round after a probe has measured the new base
)

func (w *waits) known() bool { return w.n >= minWaits }

// endProbe merges the probe into the drained weight.
func (w *waits) endProbe() {
	if p := w.probed; p.n > 0 {
		w.n = min(w.n+float64(p.n), maxWaits)
		share, n := min(1, float64(p.n)/w.n), float64(p.n)
		w.drained += (p.sum/n - w.drained) * share
		w.tilted += (p.tilt/n - w.tilted) * share
	}
	w.probed = weights{}
}

// rescale adapts the drained weight, the mean weight of round trips without a queue, to a change of
// the base. The parameters are the old and the new base. The network keeps its speed, so the
// network's share of the base changes from f to g. A round trip of x becomes g + (x-f)(1-g)/(1-f),
// which multiplies its weight by
//
//	e^((f-g)(1-x) / (width (1-f)))
//
// with the weighted mean of the round trips as x. Example: the network takes 2 ms, and exponential
// service times rise from 20 ms to 80 ms. Then the drained weight grows by 18 percent. Without the
// correction, a window for 8 calls would be too wide by 0.4 calls.
func (w *waits) rescale(from, to float64) {
	if w.n == 0 || w.drained <= 0 {
		return
	}
	f, g := min(w.network/from, maxNetwork), min(w.network/to, maxNetwork)
	x := w.tilted / w.drained
	w.drained *= math.Exp((f - g) / (1 - f) * (1 - x) / waitsWidth)
	w.tilted = w.drained * (g + (x-f)*(1-g)/(1-f))
}

// refine adapts the drained weight, the mean weight of round trips without a queue, to a better
// estimate of the base. The parameters are the old and the new estimate. The round trips themselves
// stay the same. So a round trip of x, relative to the base, becomes x * from / to.
func (w *waits) refine(from, to float64) {
	if w.n == 0 || w.drained <= 0 {
		return
	}
	x := w.tilted / w.drained
	w.drained *= math.Exp(x * (1 - from/to) / waitsWidth)
	w.tilted = w.drained * x * from / to
}

// late includes the round trip x in the drained weight, the mean weight of round trips without a
// queue. The call of x was sent during a probe, and came back after the probe.
func (w *waits) late(x float64) {
	if w.known() {
		w.probed.add(x)
		w.endProbe()
	}
}

// add adds a sample of a round: x is relative to the base, rtt in seconds.
func (w *waits) add(x, rtt float64) {
	if w.round.n == 0 || rtt < w.minRoundTrip {
		w.minRoundTrip = rtt
	}
	w.round.add(x)
}

// wait returns the mean time that the calls of the round have waited, as a multiple of the base.
// Random variation may make it negative.
func (w *waits) wait() float64 {
	return waitsWidth * math.Log(w.drained/max(w.round.sum/float64(w.round.n), 1e-300))
}

// endRound lets network, the estimated round trip of the network alone, follow the shortest round
// trip of the round: at once downwards, and slowly upwards.
func (w *waits) endRound() {
	if w.network == 0 || w.minRoundTrip < w.network {
		w.network = w.minRoundTrip
	}
	w.network += networkRise * (w.minRoundTrip - w.network)
}

// usesWeights reports whether the weights of round trips (see [waits]), instead of their mean,
// control the window.
func (d *delay) usesWeights() bool {
	return d.base.short && d.base.waits.known() && !d.start && !d.base.steady()
}

// followSpeed rescales the base if the worker's speed has changed, and reports whether it did so.
// It assumes that the queue still causes the same share of the mean round trip. Example: if the
// mean rises from 50 to 100 ms, a base of 40 ms becomes 80 ms.
func (d *delay) followSpeed() bool {
	w, mean := &d.base.waits, d.round.sum/float64(d.round.n)
	if d.round.smoothed == 0 {
		return false
	}
	before := cmp.Or(w.meanBefore, d.round.smoothed)
	if w.following == 0 {
		change := d.speedChange(mean, before)
		if change == speedUncertain && w.meanBefore == 0 {
			w.meanBefore = before
		} else {
			w.meanBefore = 0
		}
		if change == speedChanged {
			w.share, w.following, w.foundByProbe,
				w.confirmed = d.base.value/before, speedRounds, false, 0
		}
	}
	if w.following == 0 {
		return false
	}
	if w.following == speedRounds { // with a slower worker, fewer calls are in the network
		d.w += d.inFlight * w.network * (1/mean - 1/before)
		d.w = max(1, min(d.w, d.top))
	}
	w.following--
	weight := 1 / float64(speedRounds-w.following)
	if w.foundByProbe {
		weight = speedWeight
	}
	d.base.rescale(d.base.value + weight*(w.share*mean-d.base.value))
	d.round.smoothed = 0
	return true
}

// speedChange is a round's evidence of a change of the worker's speed.
type speedChange uint8

const (
	speedSame      speedChange = iota
	speedUncertain             // the next round decides: this one may have begun before the change
	speedChanged
)

// speedChange compares the mean round trip of a round with that of earlier rounds. It reports a
// change of the worker's speed if two conditions hold. First, the means differ so much that neither
// random variation nor the change of the window explains it. Second, the estimated wait shows the
// change, too: a few very long calls change the mean, but not the estimated wait. If only the first
// condition holds, the result is speedUncertain.
func (d *delay) speedChange(mean, before float64) speedChange {
	change := math.Log(mean / before)
	grown := math.Log(d.round.inFlight / float64(d.round.n) / d.inFlight)
	limit := max(minSpeedChange, speedJitter*d.round.jitter())
	wait := d.base.waits.wait()
	slower, faster := change > limit+max(0, grown), change < -limit+min(0, grown)
	switch {
	case slower && wait > speedWait, faster && wait < 0:
		return speedChanged
	case slower, faster:
		return speedUncertain
	}
	return speedSame
}

// probeEnded is called after a probe, with the base (the round trip without a queue) that was known
// before the probe. If the probe has found a change of the worker's speed, the base follows this
// change in the next rounds.
func (d *delay) probeEnded(before float64) {
	if w := &d.base.waits; d.usesWeights() && w.confirmed == 0 && d.round.smoothed > 0 {
		w.share, w.following, w.foundByProbe = before/d.round.smoothed, speedRounds, true
	}
}

// applyWeights sets the queue and its target in the verdict. The weights show a short queue better
// than the mean round trip does. But a worker may slow down all calls instead of letting some wait.
// So the queue is at least the estimate from the mean round trip, less some slack (shortSlack).
func (d *delay) applyWeights(v *verdict) {
	w := &d.base.waits
	rate := d.inFlight / v.mean
	root := math.Sqrt(d.inFlight * min(1, v.base/v.mean))
	v.queue = max(rate*v.base*w.wait(), v.queue-shortSlack*root)
	v.low = shortExtra + shortTarget*math.Sqrt(rate*min(w.network, v.base))
	v.high = v.low
}

// moveToTarget moves the window towards its target. A round trip of a wide window consists of
// several rounds, so each round moves the window part of the way.
func (d *delay) moveToTarget(v *verdict) {
	w := &d.base.waits
	limit := max(1, shortStep*math.Sqrt(d.inFlight))
	gain := shortGain * min(1, maxRound/d.inFlight)
	step := max(-limit, min(limit, gain*(v.low-v.queue)))
	if w.emptyRounds++; v.queue >= v.low/2 {
		w.emptyRounds = 0
	}
	if w.emptyRounds > shortEmpty {
		step = max(1, d.w/shortGrowth)
	}
	if step < 0 || v.limited && !d.mayBeDropping() {
		d.w = max(1, min(d.w+step, d.top))
	}
}

// shortProbeWithin returns the time between probes. It doubles, at most twice, while the probes
// confirm the base, the estimated round trip without a queue.
func (b *base) shortProbeWithin() time.Duration {
	return shortProbeEvery << min(b.waits.confirmed, shortProbeDoublings)
}
