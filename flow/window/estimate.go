//penstock:pure

package window

import (
	"math"
	"time"
)

// round collects the samples between two verdicts, which are the decisions to widen or narrow the
// window.
type round struct {
	n        int
	raw      time.Duration // sum of raw round trips
	sum, sq  float64       // sums of the normalized round trips and of their squares, in seconds
	inFlight float64       // sum of the batches in flight when each sample was sent
	limited  int           // number of samples sent at the limit
	began    time.Duration // time at which the batch of the first sample was sent
	smoothed float64       // EWMA of the rounds' normalized means; 0 before the first round
	variance float64       // EWMA of the rounds' variances of the mean
}

// add adds s, whose normalized round trip is x seconds.
func (r *round) add(s *Sample, x float64) {
	r.n++
	r.raw += s.RoundTrip
	r.sum += x
	r.sq += x * x
	r.inFlight += s.present()
	if s.Limited {
		r.limited++
	}
	if r.n == 1 {
		r.began = s.Now - s.RoundTrip
	}
}

// usedToLimit reports whether at least half of the samples were sent when the window was the limit.
// Otherwise the window must not grow (RFC 7661).
func (r *round) usedToLimit() bool { return 2*r.limited >= r.n }

// rate returns the deliveries per second in the round.
func (r *round) rate(now time.Duration) float64 {
	if span := (now - r.began).Seconds(); span > 0 {
		return float64(r.n) / span
	}
	return 0
}

// begin discards the samples of a round but keeps the averages over earlier rounds.
func (r *round) begin() { r.n, r.raw, r.sum, r.sq, r.limited, r.inFlight = 0, 0, 0, 0, 0, 0 }

func (r *round) rawMean() float64 { return r.raw.Seconds() / float64(r.n) }

// smooth adds the round's mean to the moving mean of all rounds, and returns the moving mean.
func (r *round) smooth() float64 {
	n := float64(r.n)
	mean := r.sum / n
	variance := max(0, r.sq/n-mean*mean) / n
	if r.smoothed == 0 {
		r.smoothed, r.variance = mean, variance
		return mean
	}
	r.smoothed += roundWeight * (mean - r.smoothed)
	r.variance += roundWeight * (variance - r.variance)
	return r.smoothed
}

// jitter returns the standard error of a round's mean, relative to the mean.
func (r *round) jitter() float64 {
	if r.smoothed == 0 {
		return 0
	}
	return math.Sqrt(r.variance) / r.smoothed
}

const (
	roundWeight  = 0.5 // weight of the newest round in the moving mean
	probeSamples = 8   // minimum samples of a drained probe
	// probeRound is the minimum number of samples of a probe, as a multiple of the window. Until
	// two windows of samples have come back, the measured rate is the rate of the window before the
	// probe.
	probeRound       = 2
	maxProbeSamples  = 1024 // maximum of the samples that a probe needs
	probeShare       = 0.75 // share of the non-waiting window during a probe, which limits its cost
	steadyNoise      = 0.5  // noise below which few samples are sufficient
	steadyShare      = 0.95 // probeShare if the noise is below steadyNoise
	minSteadySamples = 2    // probeSamples if the noise is below steadyNoise
	varyWeight       = 0.02 // weight of the newest deviation
	noisy            = 4.0
	noisiest         = 0.92
	baseWeight       = 0.1  // weight of a drained sample, or of a mean below the base
	probeWeight      = 0.25 // weight of a probe's mean
	fallJitter       = 1.0  // standard errors by which a mean must be below the base to lower it

	probeEvery  = 10 * time.Second // minimum interval of drained probes
	probeRounds = 30               // minimum interval in round trips
	firstProbe  = time.Second      // minimum interval while the base is provisional
	firstRounds = 10

	// A short queue needs a base that is correct within a few percent.
	shortZone           = 0.12            // share of the noise that widens the dead zone
	shortWidth          = 16.0            // width of a window above which the share is larger
	shortProbeRound     = 8               // samples of a probe, as a multiple of the window
	shortProbeLeast     = 64              // minimum samples of a probe
	shortProbeShare     = 0.88            // share of the non-waiting window during a probe
	shortProbeEvery     = 5 * time.Second // minimum interval of probes
	shortProbeDoublings = 2               // maximum number of times that the interval doubles
	// A worker has become slower if the mean of a probe is more than this number of standard errors
	// above the base, the round trip without a queue.
	shortRise = 3
	// A worker has become faster if the mean of a round is more than this number of standard errors
	// below the base, the round trip without a queue.
	shortFall = 4
)

// queue estimates the number q of batches, of w in flight, that wait at their worker. If q is
// between low and high (the dead zone), the window does not change. The zone depends on noise, the
// variation of the worker's round trips. Let r be the square root of the number of batches that do
// not wait. With a noise of 0, the zone is about r/4 to 3r/4. With a noise of 1, it is about 1.5r
// to 3r (square-root staffing). Example: if 16 batches do not wait, r is 4, and these zones are 1
// to 3 and 6 to 12 waiting batches.
func queue(w, base, mean, jitter, noise float64) (q, low, high float64) {
	share := 1.0
	if mean > 0 {
		share = min(1, base/mean)
	}
	bdp := w * share
	root := math.Sqrt(bdp)
	calmLow, calmHigh := max(0.4, root/4), max(0.9, root*3/4)
	low = calmLow + noise*(max(2, 1.5*root)-calmLow)
	high = calmHigh + noise*(max(3, 3*root)-calmHigh)
	return w * (1 - share), low, max(high, low+w*jitter)
}

// base is the mean round trip at a worker without a queue (a drained worker), in seconds.
//
// The base is a mean and not a minimum: if a single short sample were the base, the window would be
// too small for workers that serve in parallel. The base does not expire. A new value measured
// without draining would include the queue that the window itself has built, and would increase
// with each replacement. The base falls if round trips with a shorter mean are measured. It rises
// only through samples and probes of the drained worker and, with Short, if the speed of the worker
// changes (followSpeed).
type base struct {
	value           float64
	n               int     // drained samples in the mean, counted up to probeSamples
	squareDeviation float64 // EWMA of the squared deviation of drained samples
	deviations      int     // number of samples in squareDeviation
	short           bool    // Queue.Short
	reportsWait     bool    // the worker reports the wait of batches
	epoch           uint32
	waits           waits // estimate of the waits, used if short is set
	wasKnown        bool  // the base was no longer provisional at the start of the probe
	probing         bool
	narrow          float64 // the window during the probe
	isSteady        bool    // little noise at the start of the probe
	probed          int
	sum             float64
	ahead           float64       // sum of the batches in flight when each sample was sent
	until           time.Duration // if usesSpan, samples that were sent later do not count
	since           time.Duration // arrival of the first sample
	done            float64       // batches delivered since that arrival
}

// sample uses s to estimate the base, if s shows the round trip of the drained worker. The
// normalized round trip of s is x seconds. The result reports whether s must be left out of the
// round, because a probe limited the window when the attempt of s was sent, or limits it now.
//
// If a batch was alone at the worker when it was sent, its sample normally shows the drained
// worker. There is an exception in a start-up: later batches may have overtaken and delayed it. So
// a sample that was overtaken counts only if it is at most 1/8 longer than the base. If, in a
// start-up, a batch was not alone but came back first, its sample counts only for the variation of
// the worker.
func (b *base) sample(s *Sample, x float64, starting bool) bool {
	if b.value == 0 {
		b.value = x
	}
	if s.Advert.WaitKnown { // no probe is needed
		b.end()
		b.addReported(x - s.Advert.Wait.Seconds())
		return s.Epoch != b.epoch // sent while a probe limited the window
	}
	b.reportsWait = false
	if b.probing {
		b.probe(s, x)
		return true
	}
	if s.Epoch != b.epoch {
		if b.countsWeights() && s.Epoch+1 == b.epoch {
			b.waits.late(x / b.value)
		}
		return true // sent while a probe limited the window
	}
	alone := s.drained()
	if starting && alone && b.n > 0 {
		alone = !s.overtaken() || x <= b.value*(1+startSlack)
	} else if starting && !alone && s.first() {
		b.addDeviation(x)
	}
	if alone {
		if b.n < probeSamples {
			b.n++
		}
		b.addDeviation(x)
		b.value += max(1/float64(b.n), baseWeight) * (x - b.value)
	}
	return false
}

// probe adds a sample of the current probe.
func (b *base) probe(s *Sample, x float64) {
	if b.probed > 0 {
		b.done += s.batches()
	}
	// Overdue attempts beyond the window may still occupy the worker.
	if s.Epoch != b.epoch || s.ahead() >= b.narrow+1 {
		return
	}
	sent := s.Now - s.RoundTrip
	if b.probed == 0 {
		b.since, b.until = s.Now, sent+seconds(b.value*spanSent)
	}
	if !b.usesSpan() || sent <= b.until {
		b.probed++
		b.addDeviation(x)
		if b.countsWeights() {
			b.waits.probed.add(x / b.value)
		}
		b.sum += x
		b.ahead += s.ahead()
	}
	switch {
	case !b.usesSpan():
		if b.probed >= b.samplesWanted() {
			b.finish(s.Now)
		}
	case s.Now >= b.until+seconds(b.value*spanAwaited) && b.probed >= minSteadySamples:
		b.finish(s.Now)
	}
}

// countsWeights reports whether the round trips of the current probe are used as a sample of round
// trips without a queue, with which [waits] compares later ones.
func (b *base) countsWeights() bool { return b.short && b.wasKnown && !b.isSteady }

// usesSpan reports whether the probe measures every attempt that is sent within half a round trip
// (spanSent). Otherwise it measures the attempts that are answered first. In a wide window, the
// attempts that are answered first are mostly those with short round trips, so their mean would be
// too low.
func (b *base) usesSpan() bool { return b.isSteady && b.narrow > probeSamples }

const (
	spanSent    = 0.5 // round trips during which the attempts of a span are sent
	spanAwaited = 1.5 // round trips after which the last of them has come back
)

// addDeviation adds the deviation of a drained sample from the base.
func (b *base) addDeviation(x float64) {
	d := x - b.value
	b.deviations++
	b.squareDeviation += max(1/float64(b.deviations), varyWeight) * (d*d - b.squareDeviation)
}

// steady reports whether the drained worker is known to vary so little that few samples are
// sufficient.
func (b *base) steady() bool { return b.deviations > 1 && b.noise() < steadyNoise }

// deviation returns the standard deviation of a drained sample, relative to the base.
func (b *base) deviation() float64 {
	if b.value <= 0 {
		return 0
	}
	return math.Sqrt(b.squareDeviation) / b.value
}

// noise returns how much the round trips of the drained worker vary, from 0 to almost 1. At 0 no
// queue is needed to keep the worker busy. Deviations of a quarter of the round trip or more give
// almost 1. While too few round trips are known, noise returns 1.
func (b *base) noise() float64 {
	if b.deviations < 2 || b.value <= 0 {
		return 1
	}
	return min(noisiest, noisy*math.Sqrt(b.squareDeviation)/b.value)
}

// zone returns the noise from which the function queue computes the dead zone of a window of w
// batches: the lengths of the queue at which the window does not change. If Short is set, zone
// returns only a share of the measured noise, because with less noise the window keeps a shorter
// queue. The share grows with the window: in a wide window, an error of one percent in the base is
// many batches.
func (b *base) zone(w float64) float64 {
	if b.short {
		return min(1, shortZone*max(1, w/shortWidth)) * b.noise()
	}
	return b.noise()
}

// narrowed returns the window during a probe. It is a share of bdp, the number of batches in flight
// that do not wait in the worker's queue, so that the queue drains.
func (b *base) narrowed(bdp float64) float64 {
	if b.noise() < steadyNoise {
		return max(1, math.Floor(bdp*steadyShare))
	}
	if b.short {
		return max(1, math.Round(bdp*shortProbeShare))
	}
	return max(1, math.Floor(bdp*probeShare))
}

// samplesWanted returns the number of samples of a probe.
func (b *base) samplesWanted() int {
	if b.isSteady {
		return max(minSteadySamples, int(min(b.narrow, probeSamples)))
	}
	if b.short {
		return min(max(shortProbeLeast, int(shortProbeRound*b.narrow)), maxProbeSamples)
	}
	return min(max(probeSamples, int(probeRound*b.narrow)), maxProbeSamples)
}

// addReported updates the base, the mean round trip without a queue, with a round trip of a worker
// that reports how long batches wait. The reported wait was subtracted from x.
func (b *base) addReported(x float64) {
	if x <= 0 {
		return
	}
	if !b.reportsWait {
		b.reportsWait, b.n, b.value = true, 0, x
	}
	b.n++
	b.addDeviation(x)
	b.value += max(1/float64(b.n), varyWeight) * (x - b.value)
}

// finish updates the base with the mean round trip of the probe. If round trips vary, the mean of
// the first answers is too low, because the short round trips come back first. In this case finish
// computes the mean by Little's law from the number of deliveries during the probe. With Short, a
// mean far from the base shows that the worker's speed has changed. The mean then replaces the
// base.
func (b *base) finish(now time.Duration) {
	r := b.sum / float64(b.probed)
	if !b.isSteady && b.done > 0 && now > b.since {
		r = b.ahead / float64(b.probed) * (now - b.since).Seconds() / b.done
	}
	if b.n < probeSamples && (!b.isSteady || b.usesSpan()) {
		n, p := float64(b.n), float64(b.probed)
		b.value = (b.value*n + r*p) / (n + p)
	} else if b.short && math.Abs(r-b.value) > shortRise*b.value/math.Sqrt(float64(b.probed)) {
		b.waits.probed, b.waits.confirmed = weights{}, 0
		b.rescale(r)
	} else {
		b.waits.endProbe()
		b.refine(b.value + probeWeight*(r-b.value))
		if b.countsWeights() && b.waits.known() {
			b.waits.confirmed++
		}
	}
	b.n = probeSamples
	b.waits.endProbe()
	b.end()
}

// followMean lowers the base, the round trip without a queue, towards the mean of a round, but only
// if the mean is significantly lower. If the base followed every low mean, it would become a
// minimum. followMean does nothing if the worker reports the waits of its batches. The parameter
// jitter is the relative standard error of a round's mean.
func (b *base) followMean(mean, jitter float64) {
	if b.short && !b.waits.known() && !b.reportsWait && mean*(1+shortFall*jitter) < b.value {
		b.value = mean
		return
	}
	errors := fallJitter
	if b.short {
		errors = 2 * fallJitter
	}
	if mean *= 1 + errors*jitter; mean < b.value && !b.reportsWait {
		b.refine(b.value + baseWeight*(mean-b.value))
	}
}

// refine changes the base to a better estimate for the same worker.
func (b *base) refine(value float64) {
	b.waits.refine(b.value, value)
	b.value = value
}

// rescale changes the base of a worker whose speed has changed.
func (b *base) rescale(value float64) {
	b.waits.rescale(b.value, value)
	b.squareDeviation *= value / b.value * value / b.value
	b.value = value
}

func (b *base) begin(narrow float64) {
	b.probing, b.narrow, b.probed, b.sum, b.ahead, b.done = true, narrow, 0, 0, 0, 0
	b.isSteady, b.wasKnown, b.waits.probed = b.noise() < steadyNoise, b.n >= probeSamples, weights{}
	b.epoch++
}

func (b *base) end() {
	if b.probing {
		b.probing = false
		b.epoch++
	}
}

// restart is called by Reset, after which the worker may be faster or slower than before. It
// discards the samples of the base. The base keeps its value only until new samples are measured.
func (b *base) restart() {
	b.end()
	b.n, b.deviations, b.squareDeviation, b.reportsWait, b.waits = 0, 0, 0, false, waits{}
}

// probeWithin returns the wanted interval between probes. It returns 0 before the first sample. It
// also returns 0 if the worker reports the waits of its batches, because the round trip without a
// queue is then known without a probe.
func (b *base) probeWithin() time.Duration {
	if b.value == 0 || b.reportsWait {
		return 0
	}
	if b.n < probeSamples {
		return max(firstProbe, seconds(firstRounds*b.value))
	}
	every := probeEvery
	if b.short {
		every = b.shortProbeWithin()
	}
	return max(every, seconds(probeRounds*b.value))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
