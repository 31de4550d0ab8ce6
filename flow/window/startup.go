//penstock:pure

package window

import (
	"math"
	"time"
)

// startup is how a window finds its worker's level when it begins, or begins anew.
//
// It goes from one batch to two, which tell whether the worker's pace varies and whether it serves
// two at once. Where the pace varies, every ack of a full window widens it by one, which doubles it
// per round trip, until a round shows a queue (RFC 5681). Where it does not, a round trip that is
// longer than the base is no chance: as long as none is, the window goes to 12 (RFC 6928 begins
// with ten), to 32, and on by half of itself a round trip, and where some are but little queues, a
// quarter more (the conservative slow start of HyStart++, RFC 9406). It ends with the first few
// round trips that show a queue, and does not wait for those behind them: the level is what the
// worker delivered while a batch was out, at the most, times the base round trip (as in BBR).
//
// A machine that stops for a moment makes all that is out late, and so does a worker that shares
// itself among all that it has: where more comes back in a second than before although all of it is
// late, the worker is not full yet, and the window goes on by a quarter.
type startup struct {
	fastest float64 // deliveries per second of the fastest round
	flat    int     // rounds that were hardly faster
	idle    int     // rounds in which the window was not used
	pace    float64 // the most that the worker delivered in a second while a batch was out
	before  float64 // the same when the round began
	came    float64 // batches that came back about one base round trip after the window was widened,
	most    float64 // and the most of them in any round
	early   int     // answers in the round to what was sent before it
	slow    int     // round trips of the round that were longer than chance explains,
	far     int     // and by far
	slowAt  float64 // the most batches in flight with which one of them was sent,
	fineAt  float64 // and one that was not slow
	queued  int     // the last so many showed a queue
}

const (
	startFaster      = 1.15 // a round of the start-up is to be faster than all before by this factor,
	startFlat        = 3    // or so many that are not end it (BBR: the pipe is full)
	startIdle        = 4    // unused rounds end it too
	startFirst       = 12.0 // batches after the first two,
	startWide        = 32.0 // and then; from here on what is too much costs more than a round trip,
	startFurther     = 1.5  // so that the steps are smaller
	startGently      = 1.25
	startQueued      = 3.0     // samples that show a queue end it, or a quarter of the window
	startRest        = 8       // round trips for which a level that was just measured is not questioned
	startEarly       = 1.0 / 4 // of a round, at most, are the places of what was sent before it; of a narrow one
	startNarrowEarly = 2.0 / 5 // so many,
	startNarrow      = 25.0    // else a window of 25 would wait a round trip for its tenth answer
	startFew         = 4.0     // at once need no more queued than any
	startSame        = 1.0 / 2 // of the base after the window was widened, what comes is the rest of the round before
	startChance      = 16      // samples of which one may be slow by chance; one of fewer may, too,
	startFar         = 1.0 / 2 // unless it is late by so much of the base
	startMore        = 1.25    // times the pace before is faster
	startSlack       = 1.0 / 8 // of the base is no delay (RFC 9406), nor
	startSigmas      = 3.0     // so many deviations
)

// Starting says whether the window is in its start-up.
func (d *delay) Starting() bool { return d.start }

// starting takes in a sample of the start-up, whose normalised round trip is x seconds; true: the
// round has ended.
func (d *delay) starting(s *Sample, x float64) bool {
	if s.Limited && d.w < 2 {
		d.w = min(2, d.top)
		d.nextRound()
		d.since = s.Now
		return false
	}
	switch {
	case d.base.calm():
		if d.delayed(s, x) {
			return true
		}
	case s.Limited && d.base.seen > 1:
		d.w = min(d.w+1, d.top)
	}
	return d.complete()
}

// delayed takes in how late a sample of a worker is whose pace does not vary; true: the worker is
// full.
func (d *delay) delayed(s *Sample, x float64) bool {
	u, base := &d.startup, d.base.value
	u.pace = max(u.pace, s.pace())
	d.count(s)
	if x <= base*(1+max(startSlack, startSigmas*d.base.deviation())) {
		u.queued = 0 // what came by chance
		u.fineAt = max(u.fineAt, s.present())
		return false
	}
	u.slow++
	u.slowAt = max(u.slowAt, s.present())
	if x > base*(1+startFar) {
		u.far++
	}
	q, _, high := queue(s.present(), base, x, d.base.deviation(), d.base.zone(s.present()))
	if q <= high || u.more(s.present(), base, x) {
		u.queued = 0
		return false
	}
	u.queued++
	return u.full(d.w)
}

// full says whether enough samples in a row showed a queue for a window of w.
func (u *startup) full(w float64) bool {
	return u.queued > 0 && float64(u.queued) >= min(startQueued, w/4)
}

// more says whether a worker from which so many batches come back in x seconds, a little late, is
// faster than it was seen to be before.
func (u *startup) more(batches, base, x float64) bool {
	return u.before > 0 && x <= base*(1+startFar) && batches > startMore*u.before*x
}

// chance says whether that few of n round trips were slow that it was by chance: one, too, where
// what was sent with more in flight was not.
func (u *startup) chance(n int) bool {
	return startChance*u.far <= n && (startChance*u.slow <= n || u.slow == 1 && u.slowAt < u.fineAt)
}

// complete says whether a round trip of the start-up is over: as much has come back as the window
// holds. Where the pace varies, the verdict needs more of what was sent since.
func (d *delay) complete() bool {
	early := float64(d.startup.early)
	if !d.base.calm() {
		share := startEarly
		if d.w <= startNarrow {
			share = startNarrowEarly
		}
		early = min(early, d.need*share)
	}
	return d.round.n > 0 && float64(d.round.n)+early >= math.Floor(d.need)
}

// sentBefore takes in an answer to what was sent before the window was widened; true: the round has
// ended. It has a place in the round trip since then. Where the pace does not vary, what comes soon
// came with the answer that widened the window, and what is sent in its place has that place.
func (d *delay) sentBefore(s *Sample) bool {
	if !d.start || !d.base.calm() {
		d.startup.early++
		return false
	}
	d.count(s)
	if (s.Now - d.since).Seconds() < d.base.value*startSame {
		return false
	}
	d.startup.early++
	return d.complete()
}

// count takes in when a batch came back.
func (d *delay) count(s *Sample) {
	u := &d.startup
	if trips := (s.Now - d.since).Seconds() / d.base.value; trips >= startSame && trips < 1+startSame {
		u.came += s.batches()
		u.most = max(u.most, u.came)
	}
}

// started takes in the verdict of a round of the start-up. It ends when the worker is full, and
// what was queued meanwhile is given up at once.
func (d *delay) started(v *verdict, now time.Duration) {
	u := &d.startup
	calm := d.base.calm()
	full := v.queue > v.high
	if calm {
		full = u.full(d.w) || full && (startChance*u.far > d.round.n || !u.more(d.inFlight, v.base, v.mean))
	}
	if full {
		d.w = max(1, min(d.w, d.level(v, now)))
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
		if d.widen(!u.chance(d.round.n)); d.w > v.before {
			d.since = now
		}
	}
	u.early, u.slow, u.far, u.slowAt, u.fineAt, u.queued, u.came, u.before = 0, 0, 0, 0, 0, 0, 0, u.pace
}

// level is what the worker has at once without a queue, and a little more.
func (d *delay) level(v *verdict, now time.Duration) float64 {
	u := &d.startup
	if u.pace > 0 && d.base.calm() {
		zone := func(bdp float64) (low, high float64) {
			_, low, high = queue(bdp, d.base.value, d.base.value, 0, d.base.zone(bdp))
			return low, high
		}
		bdp := u.pace * d.base.value
		low, high := zone(bdp)
		if u.most <= startFew || (now-d.since).Seconds() < (1+startSame)*d.base.value {
			return bdp + low
		}
		// It serves several at once, whose answers come in bursts: until what is sent for them is there,
		// more than low has to wait. A round trip may touch two bursts.
		_, most := zone(u.most)
		return min(bdp+(low+high)/2, u.most+most)
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
		d.w = startWide
	default:
		d.w *= startFurther
	}
	d.w = min(d.w, d.top)
}
