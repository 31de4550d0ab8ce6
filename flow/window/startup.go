//penstock:pure

package window

import (
	"math"
	"time"
)

// startup is how a window finds its worker's level when it begins, or begins anew.
//
// It goes from one batch to two, which tell whether the worker's pace varies and whether it serves two at once. Where the
// pace varies, every ack of a full window widens it by one, which doubles it per round trip, until a round shows a queue
// (RFC 5681). Where it does not, a round trip that is longer than the base is no chance: as long as none is, the window goes
// to ten (RFC 6928), to 25, and on by half of itself a round trip, and where some are but little queues, a quarter more (the
// conservative slow start of HyStart++, RFC 9406). It ends with the first few round trips that show a queue, and does not
// wait for those behind them: the level is what the worker delivered while a batch was out, at the most, times the base
// round trip (as in BBR).
type startup struct {
	fastest float64 // deliveries per second of the fastest round
	flat    int     // rounds that were hardly faster
	idle    int     // rounds in which the window was not used
	pace    float64 // the most that the worker delivered in a second while a batch was out
	early   int     // answers in the round to what was sent before it
	slow    int     // round trips of the round that were longer than chance explains
	queued  int     // the last so many showed a queue
}

const (
	startFaster  = 1.15 // a round of the start-up is to be faster than all before by this factor,
	startFlat    = 3    // or so many that are not end it (BBR: the pipe is full)
	startIdle    = 4    // unused rounds end it too
	startFirst   = 10.0 // batches after the first two
	startFactor  = 2.5
	startWide    = 25.0 // from here on what is too much costs more than a round trip,
	startFurther = 1.5  // so that the steps are smaller
	startGently  = 1.25
	startQueued  = 3.0     // samples that show a queue end it, or a quarter of the window
	startRest    = 8       // round trips for which a level that was just measured is not questioned
	startEarly   = 1.0 / 4 // of a round, at most, are the places of what was sent before it;
	startNarrow  = 2.0 / 5 // up to startWide so many, else a window of 25 would wait a round trip for its tenth answer
	startChance  = 16      // samples of which one may be slow by chance
	startSlack   = 1.0 / 8 // of the base is no delay (RFC 9406), nor
	startSigmas  = 3.0     // so many deviations
)

// Starting says whether the window is in its start-up.
func (d *delay) Starting() bool { return d.start }

// starting takes in a sample of the start-up, whose normalised round trip is x seconds; true: the round has ended.
func (d *delay) starting(s *Sample, x float64) bool {
	u := &d.startup
	if s.Limited && d.w < 2 {
		d.w = min(2, d.top)
		d.nextRound()
		d.since = s.Now
		return false
	}
	switch {
	case d.base.calm():
		base := d.base.value
		u.pace = max(u.pace, s.pace())
		slack := max(startSlack, startSigmas*d.base.deviation())
		if q, _, high := queue(s.present(), base, x, d.base.deviation(), d.base.noise()); x > base*(1+slack) && q > high {
			u.queued++
		} else {
			u.queued = 0 // what came by chance
		}
		if x > base*(1+slack) {
			u.slow++
		}
		if u.queued > 0 && float64(u.queued) >= min(startQueued, d.w/4) {
			return true
		}
	case s.Limited && d.base.seen > 1:
		d.w = min(d.w+1, d.top)
	}
	return float64(d.round.n)+min(float64(u.early), d.need*u.earlyShare(d.w)) >= math.Floor(d.need)
}

// earlyShare is how much of a round may be the places of what was sent before it: a window of w was widened while they were out.
func (u *startup) earlyShare(w float64) float64 {
	if w <= startWide {
		return startNarrow
	}
	return startEarly
}

// started takes in the verdict of a round of the start-up. It ends when the worker is full, and what was queued meanwhile
// is given up at once.
func (d *delay) started(v *verdict, now time.Duration) {
	u := &d.startup
	calm := d.base.calm()
	full := v.queue > v.high || calm && u.queued > 0 && float64(u.queued) >= min(startQueued, d.w/4)
	if full {
		d.w = max(1, min(d.w, d.level(v)))
	}
	if rate := d.round.rate(now); v.limited && rate > 0 {
		if rate > startFaster*u.fastest {
			u.fastest, u.flat = rate, 0
		} else if u.flat++; u.flat >= startFlat {
			full = true
		}
	}
	if v.limited {
		u.idle = 0
	} else if u.idle++; u.idle >= startIdle && d.base.n >= probeSamples {
		full = true // this load says nothing more; a burst is not to meet a window that doubles
	}
	switch {
	case full:
		d.start = false
		d.since = now
		if calm {
			d.anew, d.rest, d.measured = true, d.rounds(startRest), true
		}
	case calm && v.limited && !d.suspicious():
		if d.widen(startChance*u.slow > d.round.n); d.w > v.before {
			d.since = now
		}
	}
	u.early, u.slow, u.queued = 0, 0, 0
}

// level is what the worker has at once without a queue, and a little more.
func (d *delay) level(v *verdict) float64 {
	u := &d.startup
	if u.pace > 0 && d.base.calm() {
		bdp := u.pace * d.base.value
		_, low, _ := queue(bdp, d.base.value, d.base.value, 0, d.base.noise())
		return bdp + low
	}
	return d.bdp() + (v.low+v.high)/2
}

// widen is the growth after a round of a worker whose pace does not vary.
func (d *delay) widen(delayed bool) {
	switch {
	case delayed:
		d.w *= startGently
	case d.w < startFirst:
		d.w = startFirst
	case d.w < startWide:
		d.w *= startFactor
	default:
		d.w *= startFurther
	}
	d.w = min(d.w, d.top)
}
