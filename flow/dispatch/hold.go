//penstock:pure

package dispatch

import (
	"math"
	"time"
)

// Holder is a Chooser that can let an item wait for a busy lane even if another lane is free.
type Holder interface {
	Chooser
	// ChooseOrHold chooses a lane i, as Choose does. It also returns a number of items, most. The
	// caller compares it with the number of waiting items:
	//
	//   - If at most that many items wait, hold the item: a busy lane is expected to take it sooner
	//     than lane i would finish it.
	//   - If more items wait, or if most is below 1, send the item to lane i.
	ChooseOrHold(now time.Duration, cost float64, key uint64, c []Candidate) (i int, most float64)
}

const (
	// idleFactor makes dispatch use an idle lane earlier than the waiting item alone would justify,
	// because while a lane idles, all later items wait longer as well. A factor of 1 would take
	// only the waiting item into account.
	idleFactor = 1 / 1.6
	// minCover and coverRoot define a covered lane. Such a lane has so many batches in flight that
	// its worker does not idle between an answer and the arrival of the next batch. Let b be the
	// number of batches that the worker and the network hold without a queue. With one batch more,
	// a covered lane would have more than b + minCover batches in flight, or more than b +
	// coverRoot*sqrt(b) if that is more. Example: with b = 1, a lane with 3 batches is covered. The
	// square root is for workers that serve in parallel, as in package window.
	minCover  = 2.5
	coverRoot = 1.5
	// silentAfter bounds the time without an answer, in round trips without a queue. If a lane is
	// silent for longer, no item waits for it while another lane is free, because the silent lane
	// may never answer.
	silentAfter = 4
)

// ChooseOrHold leaves lanes free if waiting for a busy lane takes less time. This threshold policy
// is optimal for one fast and one slow server (Lin and Kumar, IEEE TAC 1984) and almost optimal for
// several (Rykov 2001).
//
// A batch that waits in a worker's queue stays with that worker, but a batch that waits at the
// sender goes to the first worker that becomes free. Therefore a covered lane gets no more batches
// while another lane is free. An idle lane gets a batch only if many batches wait: more than the
// busy lanes complete in idleFactor times the expected time of the idle lane. Example: the busy
// lanes complete 10 further batches in that time. Then an idle lane gets a batch only if more than
// 10 wait. If enough batches wait, every lane is filled up to its window.
func (l *leastCompletion) ChooseOrHold(now time.Duration, cost float64, _ uint64,
	c []Candidate) (int, float64) {
	l.hidden = l.hidden[:0]
	for i := range c {
		if k := &c[i]; k.Free && k.covered() && k.answers(now) {
			k.Free = false
			l.hidden = append(l.hidden, i)
		}
	}
	i := l.choose(now, cost, c, false)
	for _, at := range l.hidden {
		c[at].Free = true
	}
	worth := idleFactor
	if i < 0 && len(l.hidden) > 0 {
		if i, worth = l.choose(now, cost, c, false), 1; i < 0 {
			return i, 0
		}
	}
	if i < 0 || !c[i].Known || c[i].stale(now) {
		return i, 0
	}
	return i, maxWaiting(now, cost, i, worth, c)
}

// maxWaiting returns the number of items that the busy lanes complete, beyond their current ones,
// in a certain time: the expected time of lane i for one item, multiplied by the parameter worth.
func maxWaiting(now time.Duration, cost float64, i int, worth float64, c []Candidate) float64 {
	limit := expectation(&c[i], cost) * worth
	sum := 0.0
	for j := range c {
		k := &c[j]
		if j == i || !k.Full && (!k.Free || !k.covered()) || k.Rate <= 0 || k.Failures > 0 ||
			!k.answers(now) {
			continue
		}
		// When the lane takes the next item, its work is one item less.
		left := k.Work - k.Mean + float64(k.Service)*1e-9*k.Rate
		sum += max(0, limit*k.Rate-left)
	}
	return sum / cost
}

// covered reports whether the lane is covered: it has so many batches in flight that its worker
// does not idle while the next one is on its way. It uses Base, the round trip that the lane's
// window has measured while the worker had no other batches. It does not use Service, which cannot
// distinguish a slow worker close by from a fast worker far away if few items are in flight.
// Without Base, no lane is covered.
func (k *Candidate) covered() bool {
	if k.InFlight == 0 || k.Base <= 0 || k.Rate <= 0 || k.Mean <= 0 || k.Failures > 0 {
		return false
	}
	busy := float64(k.Base) * 1e-9 * k.Rate / k.Mean
	return float64(k.InFlight+1) > busy+max(minCover, coverRoot*math.Sqrt(busy))
}

// answers reports whether a lane has answered recently, or cannot have answered yet.
func (k *Candidate) answers(now time.Duration) bool {
	return now-k.LastAnswer <= silentAfter*k.Service
}

// stale reports whether a lane has been idle for so long that it should be measured again.
func (k *Candidate) stale(now time.Duration) bool {
	idle := now - k.LastStart
	return k.InFlight == 0 && idle > staleAfter && idle > staleRounds*k.Service
}
