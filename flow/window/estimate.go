//penstock:pure

package window

import (
	"math"
	"time"
)

// round collects the samples between two verdicts.
type round struct {
	n        int
	raw      time.Duration // sum of raw round trips
	sum, sq  float64       // of normalised ones, seconds
	ahead    float64       // sum of what was in flight at each one's start, in batches
	limited  int           // of them sent at the limit
	began    time.Duration // when the last sample before them came
	smoothed float64       // EWMA of the rounds' normalised means; 0: none yet
	varied   float64       // EWMA of the rounds' variances of the mean
}

// add takes in s, whose normalised round trip is x seconds.
func (r *round) add(s *Sample, x float64) {
	r.n++
	r.raw += s.RoundTrip
	r.sum += x
	r.sq += x * x
	r.ahead += s.present()
	if s.Limited {
		r.limited++
	}
	if r.n == 1 {
		r.began = s.Now - s.RoundTrip
	}
}

// used says whether the window was the limit for half of the round at least: one that was not is
// not to grow (RFC 7661).
func (r *round) used() bool { return 2*r.limited >= r.n }

// rate is how many a second were delivered in the round.
func (r *round) rate(now time.Duration) float64 {
	if span := (now - r.began).Seconds(); span > 0 {
		return float64(r.n) / span
	}
	return 0
}

// begin forgets the samples of a round but keeps what was learned from those before.
func (r *round) begin() { r.n, r.raw, r.sum, r.sq, r.limited, r.ahead = 0, 0, 0, 0, 0, 0 }

func (r *round) rawMean() float64 { return r.raw.Seconds() / float64(r.n) }

// smooth takes the round's mean into the moving one, which it returns.
func (r *round) smooth() float64 {
	n := float64(r.n)
	mean := r.sum / n
	variance := max(0, r.sq/n-mean*mean) / n
	if r.smoothed == 0 {
		r.smoothed, r.varied = mean, variance
		return mean
	}
	r.smoothed += roundWeight * (mean - r.smoothed)
	r.varied += roundWeight * (variance - r.varied)
	return r.smoothed
}

// jitter is the standard error of a round's mean as a share of it.
func (r *round) jitter() float64 {
	if r.smoothed == 0 {
		return 0
	}
	return math.Sqrt(r.varied) / r.smoothed
}

const (
	roundWeight  = 0.5  // of the newest round in the moving mean
	probeSamples = 8    // a drained probe takes at least,
	probeRound   = 2    // and so many times its window,
	probeMost    = 1024 // but no more; in less than two rounds the rate is still that of the window before
	probeShare   = 0.75 // of the window that does not wait: a probe may cost little
	steady       = 0.5  // noise below which few samples tell much:
	steadyShare  = 0.95 // a probe then narrows less
	steadyLeast  = 2    // and takes a round, of so many at least
	varyWeight   = 0.02 // of the newest deviation
	noisy        = 4.0
	noisiest     = 0.92
	baseWeight   = 0.1  // of a drained sample, or of a mean below the base
	probeWeight  = 0.25 // of a probe's mean
	fallJitter   = 1.0  // standard errors of a round's mean below which the base follows it

	probeEvery  = 10 * time.Second // between drained probes, at least
	probeRounds = 30               // and at least so many round trips
	firstProbe  = time.Second      // while the base is provisional
	firstRounds = 10

	// A short queue needs a base that is right within a few percent.
	shortZone           = 0.12            // of the noise widens its dead zone,
	shortWidth          = 16.0            // more in windows wider than this
	shortProbeRound     = 8               // windows that a probe takes,
	shortProbeLeast     = 64              // and this many samples at least
	shortProbeShare     = 0.88            // of the window that does not wait is left to a probe
	shortProbeEvery     = 5 * time.Second // between probes, at least,
	shortProbeDoublings = 2               // and up to this often doubled
	shortRise           = 3               // standard errors of a probe's mean beyond which the worker has changed
	shortFall           = 4               // standard errors of a round's mean below the base beyond which it has
)

// queue estimates what w batches in flight keep waiting at their worker, and the dead zone in which
// it should stand. noise scales the zone from what a worker without any variation needs to
// square-root staffing.
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

// base is the mean round trip at a drained worker, in seconds.
//
// It is a mean and no minimum: one lucky sample as the base starves workers that serve in parallel.
// It never expires by age: an undrained replacement would take in the queue that the window built,
// and ratchet upward. It falls toward any mean below it and rises by drained samples and probes
// only.
type base struct {
	value   float64
	n       int     // drained samples in it, counted up to probeSamples
	square  float64 // EWMA of the squared deviation of a drained sample
	seen    int     // samples in square
	short   bool    // Queue.Short
	spoken  bool    // the worker says how long a batch waited
	epoch   uint32
	waits   waits // for short
	settled bool  // the base was no longer provisional when the probe began
	probing bool
	narrow  float64 // the window while probing
	quiet   bool    // there was little noise when it began
	probed  int
	sum     float64
	ahead   float64       // sum of what was in flight when they were sent, in batches
	until   time.Duration // last sending that counts, where spans
	since   time.Duration // when the first came back,
	done    float64       // and what has been delivered from then on, in batches
}

// sample takes in s, whose normalised round trip is x seconds, where it tells of the drained
// worker; true: it is no sample for a verdict. In a start-up little is known of it, and that has to
// be right: what was alone at the worker when it was sent, was overtaken and is late, waited; what
// came back before all else tells how the worker varies.
func (b *base) sample(s *Sample, x float64, starting bool) bool {
	if b.value == 0 {
		b.value = x
	}
	if s.Advert.Valid { // a worker that says how long it made us wait needs no draining
		b.told(x - s.Advert.Wait.Seconds())
		return false
	}
	if b.probing {
		b.probe(s, x)
		return true
	}
	if s.Epoch != b.epoch {
		if b.weighed() && s.Epoch+1 == b.epoch {
			b.waits.late(x / b.value)
		}
		return true // sent while a probe held the window down
	}
	alone := s.drained()
	if starting && alone && b.n > 0 {
		alone = !s.overtaken() || x <= b.value*(1+startSlack)
	} else if starting && !alone && s.first() {
		b.vary(x)
	}
	if alone {
		if b.n < probeSamples {
			b.n++
		}
		b.vary(x)
		b.value += max(1/float64(b.n), baseWeight) * (x - b.value)
	}
	return false
}

// probe takes in a sample of a probe under way.
func (b *base) probe(s *Sample, x float64) {
	if b.probed > 0 {
		b.done += s.batches()
	}
	if s.Epoch != b.epoch || s.ahead() >= b.narrow+1 { // overdue ones beyond the window may still fill the worker
		return
	}
	sent := s.Now - s.RoundTrip
	if b.probed == 0 {
		b.since, b.until = s.Now, sent+seconds(b.value*spanSent)
	}
	if !b.spans() || sent <= b.until {
		b.probed++
		b.vary(x)
		if b.weighed() {
			b.waits.probed.add(x / b.value)
		}
		b.sum += x
		b.ahead += s.ahead()
	}
	switch {
	case !b.spans():
		if b.probed >= b.wanted() {
			b.finish(s.Now)
		}
	case s.Now >= b.until+seconds(b.value*spanAwaited) && b.probed >= steadyLeast:
		b.finish(s.Now)
	}
}

// weighed reports whether the probe's round trips count for the drained weight.
func (b *base) weighed() bool { return b.short && b.settled && !b.quiet }

// spans reports whether the probe measures all attempts that were sent within part of a round trip.
// The first few that come back, which it measures elsewhere, are the short ones of a wide window.
func (b *base) spans() bool { return b.quiet && b.narrow > probeSamples }

const (
	spanSent    = 0.5 // round trips during which the attempts of a span are sent
	spanAwaited = 1.5 // round trips after which the last of them has come back
)

// vary takes in how far a drained sample is from the base.
func (b *base) vary(x float64) {
	d := x - b.value
	b.seen++
	b.square += max(1/float64(b.seen), varyWeight) * (d*d - b.square)
}

// calm says whether the drained worker is known to vary so little that few samples tell much.
func (b *base) calm() bool { return b.seen > 1 && b.noise() < steady }

// deviation of a drained sample, as a share of the base.
func (b *base) deviation() float64 {
	if b.value <= 0 {
		return 0
	}
	return math.Sqrt(b.square) / b.value
}

// noise is how much the round trips of the drained worker vary, from 0, where nothing need be
// queued to keep it busy, to nearly 1, from a deviation of a quarter of the round trip on.
func (b *base) noise() float64 {
	if b.seen < 2 || b.value <= 0 {
		return 1
	}
	return min(noisiest, noisy*math.Sqrt(b.square)/b.value)
}

// zone is the noise that widens the dead zone of the queue of a window of w batches. In a wide
// window an error of a percent in the base is many batches, so its zone stays wide.
func (b *base) zone(w float64) float64 {
	if b.short {
		return min(1, shortZone*max(1, w/shortWidth)) * b.noise()
	}
	return b.noise()
}

// narrowed is the window of a probe where so much does not wait.
func (b *base) narrowed(bdp float64) float64 {
	if b.noise() < steady {
		return max(1, math.Floor(bdp*steadyShare))
	}
	if b.short {
		return max(1, math.Round(bdp*shortProbeShare))
	}
	return max(1, math.Floor(bdp*probeShare))
}

// wanted is how many samples a probe takes.
func (b *base) wanted() int {
	if b.quiet {
		return max(steadyLeast, int(min(b.narrow, probeSamples)))
	}
	if b.short {
		return min(max(shortProbeLeast, int(shortProbeRound*b.narrow)), probeMost)
	}
	return min(max(probeSamples, int(probeRound*b.narrow)), probeMost)
}

// told takes in a round trip without its wait.
func (b *base) told(x float64) {
	if x <= 0 {
		return
	}
	if !b.spoken {
		b.spoken, b.n, b.value = true, 0, x
	}
	b.n++
	b.vary(x)
	b.value += max(1/float64(b.n), varyWeight) * (x - b.value)
}

// finish takes in the mean of the probe. Where round trips vary it is taken from how many came back
// in the time, by Little's law: those that came back first are the short ones.
func (b *base) finish(now time.Duration) {
	r := b.sum / float64(b.probed)
	if !b.quiet && b.done > 0 && now > b.since {
		r = b.ahead / float64(b.probed) * (now - b.since).Seconds() / b.done
	}
	if b.n < probeSamples && (!b.quiet || b.spans()) {
		n, p := float64(b.n), float64(b.probed)
		b.value = (b.value*n + r*p) / (n + p)
	} else if b.short && math.Abs(r-b.value) > shortRise*b.value/math.Sqrt(float64(b.probed)) {
		b.waits.probed, b.waits.confirmed = weights{}, 0
		b.rescale(r)
	} else {
		b.value += probeWeight * (r - b.value)
		if b.weighed() && b.waits.known() {
			b.waits.confirmed++
		}
	}
	b.n = probeSamples
	b.waits.endProbe()
	b.end()
}

// fall lets the base follow a mean that is below it by more than chance: it would follow every low
// one else, and end up as a minimum. jitter is the standard error of a round's mean, as a share.
func (b *base) fall(mean, jitter float64) {
	if b.short && !b.waits.known() && !b.spoken && mean*(1+shortFall*jitter) < b.value {
		b.value = mean
		return
	}
	errors := fallJitter
	if b.short {
		errors = 2 * fallJitter
	}
	if mean *= 1 + errors*jitter; mean < b.value && !b.spoken {
		b.value += baseWeight * (mean - b.value)
	}
}

// rescale changes the base of a worker whose speed has changed.
func (b *base) rescale(value float64) {
	b.square *= value / b.value * value / b.value
	b.value = value
}

func (b *base) begin(narrow float64) {
	b.probing, b.narrow, b.probed, b.sum, b.ahead, b.done = true, narrow, 0, 0, 0, 0
	b.quiet, b.settled, b.waits.probed = b.noise() < steady, b.n >= probeSamples, weights{}
	b.epoch++
}

func (b *base) end() {
	if b.probing {
		b.probing = false
		b.epoch++
	}
}

// restart makes the base provisional: the worker may have changed.
func (b *base) restart() {
	b.end()
	b.n, b.seen, b.square, b.spoken, b.waits = 0, 0, 0, false, waits{}
}

func (b *base) probeWithin() time.Duration {
	if b.value == 0 {
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
