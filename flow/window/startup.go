//penstock:pure

package window

import (
	"math"
	"time"
)

// startup is the first phase of a window, and the phase after a Reset. It finds the level of the
// worker, which is the number of batches that the worker serves at once.
//
// The window grows from one batch to two. These two show whether the worker's pace varies, and
// whether it serves two batches at once. If the pace varies, every ack of a full window widens the
// window by one batch, until a round shows a queue. So the window doubles per round trip (RFC
// 5681).
//
// If the pace does not vary, a round trip longer than the base is not random. While no round trip
// is longer, the window grows to 12 (RFC 6928 begins with ten), to 32, and then by half of itself
// per round trip. If some round trips are longer but little is queued, it grows by a quarter (the
// conservative slow start of HyStart++, RFC 9406). The start-up ends as soon as a few round trips
// show a queue. The level is then computed as in BBR: the maximum rate at which the worker
// delivered while a batch was in flight, times the base round trip.
//
// All batches in flight may be late although the worker is not full. This happens if a machine
// stops for a moment, or if a worker divides its capacity among all batches. Therefore the window
// continues to grow by a quarter if more batches per second come back than before.
type startup struct {
	on      bool
	initial float64 // size of the window at the start
	fastest float64 // maximum deliveries per second of any round
	flat    int     // rounds that were hardly faster
	idle    int     // consecutive rounds in which the window was not used up
	used    float64 // maximum batches in flight in these rounds
	pace    float64 // maximum deliveries per second while a batch was in flight
	before  float64 // pace at the start of the round
	// returned is the number of batches that came back in a certain time after the window was
	// widened: from 0.5 to 1.5 base round trips.
	returned    float64
	maxReturned float64 // maximum of returned in any round
	early       int     // answers in the round to batches sent before it
	slow        int     // round trips of the round that were longer than random variation explains
	verySlow    int     // slow round trips that were much longer
	slowAt      float64 // maximum batches in flight when a slow one was sent
	normalAt    float64 // maximum batches in flight when one that was not slow was sent
	queued      int     // number of consecutive samples, up to the last one, that showed a queue
}

const (
	// startFaster is the factor by which the rate of a round must exceed the earlier rates.
	// Otherwise the round counts as flat.
	startFaster    = 1.15
	startFlat      = 3    // flat rounds that end the start-up (BBR: the pipe is full)
	startIdle      = 4    // unused rounds that end the start-up
	startStep1     = 12.0 // batches after the first two
	startStep2     = 32.0 // batches after startStep1
	startLargeStep = 1.5  // later steps, which are smaller: an excess costs more than a round trip
	startSmallStep = 1.25
	startQueued    = 3.0 // samples, or a quarter of the window, that must show a queue to end it
	// startEarly is the maximum share of a round that batches sent before the round may have.
	startEarly       = 1.0 / 4
	startNarrowEarly = 2.0 / 5 // the same for windows up to startNarrow
	// startNarrow is the maximum window to which startNarrowEarly applies.
	startNarrow = 25.0
	startFew    = 4.0 // up to this many answers at once need no additional queue
	// An answer belongs to the previous round if it comes back soon after the widening of the
	// window: within startSame times the base round trip.
	startSame       = 1.0 / 2
	startChance     = 16      // at most one of this many samples is slow at random
	startVerySlow   = 1.0 / 2 // share of the base: a sample that is later than this is not random
	startFasterPace = 1.25    // multiple of the previous pace that counts as faster
	startSlack      = 1.0 / 8 // share of the base that is not a delay (RFC 9406)
	startSigmas     = 3.0     // standard deviations that are not a delay
)

// Starting reports whether the window is in its start-up.
func (d *delay) Starting() bool { return d.startup.on }

// starting adds a sample of the start-up with a normalized round trip of x seconds. It reports
// whether the round has ended.
func (d *delay) starting(s *Sample, x float64) bool {
	d.startup.used = max(d.startup.used, s.present())
	if s.Limited && d.w < 2 {
		d.w = min(2, d.top)
		d.nextRound()
		d.since = s.Now
		return false
	}
	switch {
	case d.base.steady():
		if d.delayed(s, x) {
			return true
		}
	case s.Limited && d.base.deviations > 1:
		d.w = min(d.w+1, d.top)
	}
	return d.complete()
}

// delayed checks whether the round trip of a sample, x seconds, is longer than the base, the round
// trip without a queue. It is for workers with a constant pace. It reports whether enough samples
// in a row show that the worker is full.
func (d *delay) delayed(s *Sample, x float64) bool {
	u, base := &d.startup, d.base.value
	u.pace = max(u.pace, s.pace())
	d.count(s)
	if x <= base*(1+max(startSlack, startSigmas*d.base.deviation())) {
		u.queued = 0 // the slow samples were random
		u.normalAt = max(u.normalAt, s.present())
		return false
	}
	u.slow++
	u.slowAt = max(u.slowAt, s.present())
	if x > base*(1+startVerySlow) {
		u.verySlow++
	}
	q, _, high := queue(s.present(), base, x, d.base.deviation(), d.base.zone(s.present()))
	if q <= high || u.isFaster(s.present(), base, x) {
		u.queued = 0
		return false
	}
	u.queued++
	return u.full(d.w)
}

// full reports whether enough consecutive samples showed a queue for a window of w.
func (u *startup) full(w float64) bool {
	return u.queued > 0 && float64(u.queued) >= min(startQueued, w/4)
}

// isFaster reports whether a worker that returns this many batches in x seconds is clearly faster
// than at any time before. It returns false if x is much longer than the base.
func (u *startup) isFaster(batches, base, x float64) bool {
	return u.before > 0 && x <= base*(1+startVerySlow) && batches > startFasterPace*u.before*x
}

// mayBeRandom reports whether the slow ones of n round trips may be slow by chance. This is so if
// they are at most one in startChance. A single slow one may also be random if a batch that was
// sent with more batches in flight was not slow. In both cases, at most one in startChance may be
// very slow.
func (u *startup) mayBeRandom(n int) bool {
	return startChance*u.verySlow <= n && (startChance*u.slow <= n || u.slow == 1 &&
		u.slowAt < u.normalAt)
}

// complete reports whether a round of the start-up is over: as many batches have come back as the
// window holds. If the pace varies, only a certain share of these batches may have been sent before
// the round began.
func (d *delay) complete() bool {
	early := float64(d.startup.early)
	if !d.base.steady() {
		share := startEarly
		if d.w <= startNarrow {
			share = startNarrowEarly
		}
		early = min(early, d.samplesNeeded*share)
	}
	return d.round.n > 0 && float64(d.round.n)+early >= math.Floor(d.samplesNeeded)
}

// sentBefore handles an answer to a batch that was sent before the window was widened, and reports
// whether the round has ended. Such an answer normally counts towards the current round. If the
// pace does not vary, an answer soon after the widening belongs to the same burst as the last
// answer of the previous round. It does not count towards the current round.
func (d *delay) sentBefore(s *Sample) bool {
	if !d.startup.on || !d.base.steady() {
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

// count counts the batches that came back about one base round trip after the window was widened.
// Their largest number in any round limits the window after the start-up (see [delay.level]).
func (d *delay) count(s *Sample) {
	u := &d.startup
	if trips := (s.Now - d.since).Seconds() / d.base.value; trips >= startSame &&
		trips < 1+startSame {
		u.returned += s.batches()
		u.maxReturned = max(u.maxReturned, u.returned)
	}
}

// started handles the verdict of a round of the start-up. When the worker is full, the start-up
// ends. The window is then narrowed at once to the level, the number of batches that the worker
// serves at once. The start-up also ends if the rate of deliveries stays flat, or if the load does
// not use up the window, for several rounds. In the second case, the window is narrowed to the
// number of batches that the load has used.
func (d *delay) started(v *verdict, now time.Duration) {
	u := &d.startup
	calm := d.base.steady()
	full := v.queue > v.high
	if calm {
		full = u.full(d.w) ||
			full && (startChance*u.verySlow > d.round.n || !u.isFaster(d.inFlight, v.base, v.mean))
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
		u.idle, u.used = 0, 0
	} else if u.idle++; u.idle >= startIdle && d.base.n >= probeSamples {
		// This load shows no more about the worker. A later burst must not meet a doubling window,
		// or a window that is wider than this load has tested. The window may be too wide if the
		// first round trips were equal by chance.
		full = true
		d.w = max(1, u.initial, min(d.w, u.used))
	}
	switch {
	case full:
		d.startup.on = false
		d.since = now
		if calm {
			d.unsmoothed = true
		}
	case calm && v.limited && !d.mayBeDropping():
		if d.widen(!u.mayBeRandom(d.round.n)); d.w > v.before {
			d.since = now
		}
	}
	u.early, u.slow, u.verySlow, u.slowAt, u.normalAt, u.queued, u.returned,
		u.before = 0, 0, 0, 0, 0, 0,
		0, u.pace
}

// level returns the number of batches that the worker holds without a queue, plus a few.
func (d *delay) level(v *verdict, now time.Duration) float64 {
	u := &d.startup
	if u.pace > 0 && d.base.steady() {
		zone := func(bdp float64) (low, high float64) {
			_, low, high = queue(bdp, d.base.value, d.base.value, 0, d.base.zone(bdp))
			return low, high
		}
		bdp := u.pace * d.base.value
		low, high := zone(bdp)
		if u.maxReturned <= startFew || (now-d.since).Seconds() < (1+startSame)*d.base.value {
			return bdp + low
		}
		// The worker serves several batches at once, and their answers come in bursts. It needs
		// work until the next batches arrive. So the level includes a queue halfway between the
		// bounds low and high, and not only low. If two bursts came within one round trip, bdp (the
		// batches being served) is too high. Therefore the level is at most the number of answers
		// of one round, plus the queue for that number.
		_, most := zone(u.maxReturned)
		return min(bdp+(low+high)/2, u.maxReturned+most)
	}
	return d.bdp() + (v.low+v.high)/2
}

// widen grows the window after a round of a worker with a constant pace.
func (d *delay) widen(delayed bool) {
	switch {
	case delayed:
		d.w *= startSmallStep
	case d.w < startStep1:
		d.w = startStep1
	case d.w < startStep2:
		d.w = startStep2
	default:
		d.w *= startLargeStep
	}
	d.w = min(d.w, d.top)
}
