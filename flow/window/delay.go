//penstock:pure

package window

import (
	"math"
	"time"
)

// delay is what the windows share that judge by the round trip: the round, the drained round trip, the start-up
// and the figures of the last verdict. w is in batches, times are in seconds.
type delay struct {
	w, top   float64
	start    bool // start-up: every ack of a full window widens it by one, which doubles it per round trip
	round    round
	inFlight float64 // when the batches of the last round were sent, on the average
	idle     int     // rounds of the start-up in which the window was not used
	empty    int     // rounds in a row in which next to nothing was queued behind a full window
	need     float64 // samples that end the round
	base     base
	state    State
	verdict  verdict
	cut      bool          // narrowed for a timeout or a nack since the last verdict: once a round is enough
	floor    float64       // of this round's narrowing
	before   float64       // what a late ack gives back; 0: nothing
	fastest  float64       // deliveries per second of the fastest round of the start-up
	flat     int           // rounds of the start-up that were hardly faster
	last     time.Duration // sample
	since    time.Duration // what was sent before says nothing of the window as it is
	restarts bool          // a failure starts over, so that the start-up comes again
}

const (
	startFaster = 1.15 // a round of the start-up is to be faster than all before by this factor,
	startIdle   = 4    // unused rounds end it too
	emptyShare  = 0.25 // of the low mark is next to nothing
	emptyRounds = 3
	startFlat   = 3 // or so many that are not end it (BBR: the pipe is full)

	leastRound = 8
	mostRound  = 64

	// pause is a gap between two samples after which a round begins anew: a suspended machine, a load that stopped.
	pause = 10 * time.Second
)

func newDelay(initial, top int, start bool) delay {
	return delay{w: float64(initial), top: float64(top), start: start, need: max(2, float64(initial))}
}

func (d *delay) Limit() float64 {
	if d.base.probing {
		return d.base.narrow
	}
	return d.w
}
func (d *delay) Batches() bool             { return false }
func (d *delay) Epoch() uint32             { return d.base.epoch }
func (d *delay) Probing() bool             { return d.base.probing }
func (d *delay) Base() time.Duration       { return seconds(d.base.value) }
func (d *delay) EndProbe(time.Duration)    { d.base.end(); d.nextRound() }
func (d *delay) Discard(now time.Duration) { d.nextRound(); d.since = now }

// ProbeWithin wants no probe in the start-up, which it would disturb.
func (d *delay) ProbeWithin() time.Duration {
	if d.start {
		return 0
	}
	return d.base.probeWithin()
}

func (d *delay) State() State {
	if d.base.probing {
		return Probing
	}
	return d.state
}

// bdp is the part of the window that does not wait.
func (d *delay) bdp() float64 {
	if m := d.round.smoothed; m > 0 && d.base.value > 0 {
		return d.inFlight * min(1, d.base.value/m)
	}
	return d.w
}

func (d *delay) BeginProbe(time.Duration) { d.base.begin(d.base.narrowed(d.bdp())) }

func (d *delay) nextRound() {
	d.round.begin()
	d.cut = false
	d.need = max(2, d.w)
	if !d.start {
		d.need = max(leastRound, min(d.w, mostRound))
	}
}

// sample takes s into the round; true: the round has ended.
func (d *delay) sample(s *Sample) bool {
	if s.Late {
		return false
	}
	if s.Now-d.last > pause {
		d.nextRound()
	}
	d.last = s.Now
	if d.base.sample(s) {
		if !d.base.probing {
			d.nextRound()
		}
		return false
	}
	if d.since > 0 && s.Now-s.RoundTrip < d.since {
		return false // it was sent into the window as it was before
	}
	d.round.add(s)
	if d.start && s.Limited && d.base.seen > 1 { // two drained samples tell whether the worker's pace varies
		d.w = min(d.w+1, d.top)
	}
	if d.start && d.round.n >= leastRound && d.base.noise() < steady && d.filling() {
		return true // no need to wait for the round's end: it doubles while it waits
	}
	return float64(d.round.n) >= d.need
}

// filling says whether the round so far shows a queue above the high mark.
func (d *delay) filling() bool {
	n := float64(d.round.n)
	q, _, high := queue(d.round.ahead/n, d.base.value, d.round.sum/n, d.round.jitter(), d.base.noise())
	return q > high
}

// judge fills in the verdict of the round that has ended.
func (d *delay) judge() *verdict {
	v := &d.verdict
	*v = verdict{cause: roundEnded, before: d.w, limited: d.round.used()}
	if d.start { // what was before the window doubled says little
		d.round.smoothed = 0
	}
	v.mean = d.round.smooth()
	d.base.fall(v.mean)
	v.base = d.base.value
	// What was in flight when the round's batches were sent is what made their round trips: in the start-up, and
	// where the window is not used up, that is less than the window.
	d.inFlight = d.round.ahead / float64(d.round.n)
	v.queue, v.low, v.high = queue(d.inFlight, v.base, v.mean, d.round.jitter(), d.base.noise())
	d.state = Normal
	if v.queue > v.high {
		d.state = Slow
		d.before = 0 // slow is no spurious timeout
	}
	return v
}

// started ends the start-up when the worker is full. What was queued meanwhile is given up at once.
func (d *delay) started(v *verdict, now time.Duration) {
	full := v.queue > v.high
	if full {
		d.w = max(1, min(d.w, d.bdp()+(v.low+v.high)/2))
	}
	if rate := d.round.rate(now); v.limited && rate > 0 {
		if rate > startFaster*d.fastest {
			d.fastest, d.flat = rate, 0
		} else if d.flat++; d.flat >= startFlat {
			full = true
		}
	}
	if v.limited {
		d.idle = 0
	} else if d.idle++; d.idle >= startIdle && d.base.n >= probeSamples {
		full = true // this load says nothing more; a burst is not to meet a window that doubles
	}
	if full {
		d.start = false
		d.since = now
	}
}

// grow widens the window by a batch, and by more each round while next to nothing queues behind it: the worker has
// become faster than the window's steps.
func (d *delay) grow(v *verdict) {
	step := 1.0
	if v.queue < v.low*emptyShare {
		if d.empty++; d.empty > emptyRounds {
			step = math.Min(math.Exp2(float64(min(d.empty-emptyRounds, 10))), max(1, d.w/2))
		}
	} else {
		d.empty = 0
	}
	d.w = min(d.w+step, d.top)
}

// busy narrows the window by a batch for each failure, in a round to share of itself at most: where a receiver refuses
// what is beyond its limit, what is left is that limit. A timeout narrows it to share at once.
func (d *delay) busy(now time.Duration, c cause, share float64) {
	d.verdict = verdict{cause: c, before: d.w}
	d.state = Busy
	d.start = false
	if !d.cut {
		d.nextRound()
		d.since = now
		d.cut, d.floor, d.before = true, max(1, d.w*share), 0
		if c == timedOut {
			d.before = d.w
		}
	}
	if c == timedOut {
		d.w = min(d.w, d.floor)
	} else {
		d.w = max(d.floor, d.w-1)
	}
	d.verdict.after = d.w
}

func (d *delay) OnUndo(time.Duration) {
	if d.before == 0 {
		return
	}
	d.verdict = verdict{cause: undone, before: d.w}
	d.w = min(max(d.w, d.before), d.top)
	d.before = 0
	d.verdict.after = d.w
	d.state = Normal
}

func (d *delay) Reset(time.Duration) {
	d.verdict = verdict{cause: restarted, before: d.w, after: 1}
	d.w, d.before, d.state = 1, 0, Unknown
	d.start, d.fastest, d.flat, d.idle, d.empty = d.restarts, 0, 0, 0, 0
	d.base.restart()
	d.round = round{}
	d.nextRound()
}

func (d *delay) Reason() string {
	if d.base.probing {
		return d.base.reason()
	}
	if d.start && d.verdict.cause == roundEnded {
		return d.verdict.reason() + "; start-up: doubles each round trip"
	}
	return d.verdict.reason()
}
