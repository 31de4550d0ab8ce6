//penstock:pure

package window

import (
	"math"
	"time"
)

// delay is the common part of the windows of Queue, AIMD, Credit and Rate. It collects samples in
// rounds. At the end of each round a verdict decides whether the window grows, shrinks or keeps its
// size.
type delay struct {
	adaptive
	cut           float64 // smallest share of the window that the failures of one round leave
	startup       startup
	inFlight      float64 // mean number in flight when the batches of the last round were sent
	empty         int     // consecutive rounds with almost nothing queued behind a full window
	unsmoothed    bool    // do not smooth the next round with earlier ones
	samplesNeeded float64 // samples that complete the round
	hanging       struct {
		lost      int     // attempts in flight that are probably lost
		uncertain float64 // Sample.Uncertain of the last sample
	}
	// narrowed means that a timeout or nack has narrowed the window since the last verdict. A
	// timeout does so at most once per round.
	narrowed     bool
	floor        float64       // lower bound of this round's narrowing
	windowBefore float64       // window that a late ack restores; 0 if none
	last         time.Duration // time of the last sample
	startBefore  bool          // windowBefore was the window of a start-up, which is restored too
}

const (
	emptyShare  = 0.25 // a queue below this share of the low mark is almost empty
	emptyRounds = 3

	// standard deviations of the number of uncertain batches that the queue makes up for
	uncertainErrors = 3.0
	uncertainProbes = 4.0 // intervals added to that of probes if all batches were uncertain

	// The window does not grow if a large share of the attempts in flight are probably lost. This
	// share is one in 16 if round trips hardly vary (steady), and otherwise one in four.
	lostShareSteady = 16.0
	lostShareNoisy  = 4.0

	minRound = 8
	maxRound = 64

	// pause is the gap between two samples after which a new round begins, for example after a
	// suspended machine or an interrupted load.
	pause = 10 * time.Second
)

func newDelay(initial, top int, cut float64) delay {
	a := newAdaptive(initial, top)
	return delay{adaptive: a, cut: cut, startup: startup{on: true, initial: a.w}, samplesNeeded: max(2, a.w)}
}

func (d *delay) Batches() bool             { return false }
func (d *delay) EndProbe(time.Duration)    { d.base.end(); d.nextRound() }
func (d *delay) Discard(now time.Duration) { d.nextRound(); d.since = now }

// ProbeWithin returns 0 in the start-up, which a probe would disturb.
func (d *delay) ProbeWithin() time.Duration {
	if d.startup.on {
		return 0
	}
	within := d.base.probeWithin()
	if d.base.n >= probeSamples { // a probe with uncertain batches takes longer
		within += time.Duration(uncertainProbes * d.hanging.uncertain * float64(within))
	}
	return within
}

// bdp returns the number of batches in flight that do not wait in the worker's queue (the
// bandwidth-delay product).
func (d *delay) bdp() float64 {
	if d.usesWeights() && d.verdict.cause == roundEnded {
		return max(1, d.inFlight-max(0, d.verdict.queue,
			d.inFlight*(1-d.base.value/d.verdict.mean)))
	}
	if m := d.round.smoothed; m > 0 && d.base.value > 0 {
		return d.inFlight * min(1, d.base.value/m)
	}
	return d.w
}

func (d *delay) BeginProbe(time.Duration) { d.base.begin(d.base.narrowed(d.bdp())) }

func (d *delay) nextRound() {
	d.round.begin()
	d.base.waits.round = weights{}
	d.narrowed = false
	d.startup.early = 0
	d.samplesNeeded = max(2, d.w)
	if !d.startup.on {
		d.samplesNeeded = max(minRound, min(d.w, maxRound))
		if d.base.short && !d.base.steady() {
			d.samplesNeeded = maxRound
		}
	}
}

// sample adds s to the round and reports whether the round has ended.
func (d *delay) sample(s *Sample) bool {
	if s.Late {
		return false
	}
	if s.Now-d.last > pause {
		d.nextRound()
	}
	d.last = s.Now
	x, before, probing := s.normal(), d.base.value, d.base.probing
	if d.base.sample(s, x, d.startup.on) {
		if !d.base.probing {
			if probing {
				d.probeEnded(before)
			}
			d.nextRound()
			if d.base.steady() { // after the probe, the next batches find an empty worker
				d.since = s.Now + seconds(d.base.value)
			}
		}
		return false
	}
	if d.since > 0 && s.Now-s.RoundTrip < d.since { // sent into the previous window
		return d.sentBefore(s)
	}
	d.round.add(s, x)
	if d.base.short {
		d.base.waits.add(x/d.base.value, x)
	}
	d.hanging.lost, d.hanging.uncertain = s.PresumedLost, s.Uncertain
	if d.startup.on {
		return d.starting(s, x)
	}
	return float64(d.round.n) >= d.samplesNeeded
}

// mayBeDropping reports whether the worker may be dropping attempts above a limit of its own. It
// may if many attempts are still in flight although later attempts were answered.
func (d *delay) mayBeDropping() bool {
	share := lostShareNoisy
	if d.base.steady() {
		share = lostShareSteady
	}
	return d.hanging.lost > 0 && float64(d.hanging.lost)*share >= d.w
}

// endRound returns the verdict of the round that has ended. The verdict has the queue at the worker
// and two bounds: the window grows if the queue is below the lower bound, and shrinks if it is
// above the upper bound.
func (d *delay) endRound() *verdict {
	v := &d.verdict
	*v = verdict{cause: roundEnded, before: d.w, limited: d.round.usedToLimit()}
	if d.startup.on || d.unsmoothed { // the state before the window changed is not relevant
		d.round.smoothed, d.unsmoothed = 0, false
	}
	weighs, moved := d.usesWeights(), false
	if d.base.short {
		d.base.waits.endRound()
		moved = weighs && d.followSpeed()
	}
	v.mean = d.round.smooth()
	d.base.followMean(v.mean, d.round.jitter())
	v.base = d.base.value
	// The queue is computed from the number of batches that were in flight when the batches of the
	// round were sent. That number is less than the window in the start-up, and also if the load
	// does not use up the window.
	d.inFlight = d.round.inFlight / float64(d.round.n)
	v.queue, v.low, v.high = queue(d.inFlight, v.base, v.mean, d.round.jitter(),
		d.base.zone(d.inFlight))
	if d.hanging.uncertain > 0 && !d.startup.on {
		extra := uncertainErrors * math.Sqrt(d.inFlight*d.hanging.uncertain)
		v.low += extra
		v.high += extra
	}
	switch {
	case moved:
		// followSpeed has just changed the base, the round trip without a queue. The samples of
		// this round were compared with the old base, so they do not show the queue. Keep the
		// window.
		v.queue = (v.low + v.high) / 2
		v.low, v.high = v.queue, v.queue
	case weighs:
		d.applyWeights(v)
	}
	d.state = Normal
	if v.queue > v.high {
		d.state = Slow
		d.windowBefore = 0 // a slow round is not caused by a spurious timeout
	}
	return v
}

// grow widens the window by one batch, unless the worker may be dropping attempts. If almost
// nothing was queued in several consecutive rounds, the step doubles from round to round, up to
// half of the window. So the window catches up with a worker that has become much faster.
//
// If round trips hardly vary, the effect of each step is measured before the next one: answers to
// batches sent before the last step do not count.
func (d *delay) grow(v *verdict, now time.Duration) {
	if d.mayBeDropping() {
		return
	}
	step := 1.0
	if v.queue < v.low*emptyShare {
		if d.empty++; d.empty > emptyRounds {
			step = math.Min(math.Exp2(float64(min(d.empty-emptyRounds, 10))), max(1, d.w/2))
		}
	} else {
		d.empty = 0
	}
	d.w = min(d.w+step, d.top)
	if d.base.steady() {
		d.since, d.unsmoothed = now, true
	}
}

func (d *delay) OnTimeout(now time.Duration, _ float64) { d.narrow(now, timedOut) }
func (d *delay) OnNack(now time.Duration, _ float64)    { d.narrow(now, nacked) }

// narrow narrows the window after a failure. A timeout multiplies the window by d.cut, at most once
// per round. But if the worker seems to drop batches, a timeout narrows the window to the number of
// batches that do not wait in the worker's queue.
//
// A nack narrows the window by one batch. All nacks of a round together narrow it no more than a
// timeout. Example: with a window of 10 and a cut of 0.5, three nacks leave 7, and eight nacks
// leave 5. So if a receiver refuses work beyond a limit, the window that remains after the nacks is
// that limit.
func (d *delay) narrow(now time.Duration, c cause) {
	d.verdict = verdict{cause: c, before: d.w}
	d.state = Busy
	starting := d.startup.on
	d.startup.on = false
	if !d.narrowed {
		d.nextRound()
		d.since = now
		d.narrowed, d.floor, d.windowBefore = true, max(1, d.w*d.cut), 0
		if c == timedOut {
			d.windowBefore, d.startBefore = d.w, starting
			if d.hanging.lost > 0 { // later batches were delivered: the worker drops the excess
				d.floor = max(1, min(d.w, d.bdp()))
			}
		}
	}
	if c == timedOut {
		d.w = min(d.w, d.floor)
	} else {
		d.w = max(d.floor, d.w-1)
	}
	d.verdict.after = d.w
}

// Refused narrows the window to level, the number of batches above which its worker refuses more.
func (d *delay) Refused(now time.Duration, level float64) {
	if d.w <= level {
		return
	}
	d.move(refused, max(1, level), Busy)
	d.startup.on, d.windowBefore = false, 0
	d.nextRound()
	d.since = now
}

func (d *delay) OnUndo(time.Duration) {
	if d.windowBefore == 0 || d.w > d.windowBefore { // nothing is left to undo
		d.windowBefore = 0
		return
	}
	d.move(undone, min(max(d.w, d.windowBefore), d.top), Normal)
	d.windowBefore, d.startup.on = 0, d.startup.on || d.startBefore
}

func (d *delay) Reset(time.Duration) {
	d.move(restarted, 1, Unknown)
	d.startup, d.empty, d.hanging.lost = startup{on: true}, 0, 0
	d.windowBefore = 0
	d.base.restart()
	d.round = round{}
	d.nextRound()
}

func (d *delay) Reason() string {
	reason := d.adaptive.Reason()
	if d.startup.on && !d.base.probing && d.verdict.cause == roundEnded {
		reason += "; start-up: it is widened quickly until something queues"
	}
	return reason
}
