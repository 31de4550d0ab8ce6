//penstock:pure

package dispatch

import (
	"math"
	"time"
)

// Holder is a Chooser that can say that an item had better wait, although a lane is free, for one
// that is busy.
type Holder interface {
	Chooser
	// Place is Choose, with how many items may wait rather than that lane i is given one of them;
	// below 1: none.
	Place(now time.Duration, cost float64, key uint64, c []Candidate) (i int, most float64)
}

const (
	// idleWorth is how much longer than at an idle lane an item may take that waits, before the idle
	// one is used: while it idles, all that come later wait longer too. With 1 each item would only
	// look after itself.
	idleWorth = 1 / 1.6
	// A lane is covered when it has so many batches more in flight than it holds without a queue: it
	// will not idle before an answer has come and another batch has gone out. The root is for lanes
	// that serve in parallel, as in windows.
	coverLeast = 2.5
	coverRoot  = 1.5
	// silentAfter so many drained round trips without an answer nobody waits for a lane: it may never
	// answer.
	silentAfter = 4
)

// Place leaves lanes free that would take longer than it takes to wait for a busy one: the policy
// of a threshold that is optimal for one fast and one slow server (Lin and Kumar, IEEE TAC 1984)
// and nearly so for several (Rykov 2001). A batch that is queued at a worker has no other choice
// any more, while one that waits at the sender goes to whoever is done first. So a lane that is
// covered gets nothing more while another is free, and a lane that idles gets a batch only when
// more wait than the busy lanes complete in the time that it would take, times idleWorth. Where
// enough waits every lane is filled to its window.
func (l *leastCompletion) Place(now time.Duration, cost float64, _ uint64, c []Candidate) (int, float64) {
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
	worth := idleWorth
	if i < 0 && len(l.hidden) > 0 {
		if i, worth = l.choose(now, cost, c, false), 1; i < 0 {
			return i, 0
		}
	}
	if i < 0 || !c[i].Known || c[i].stale(now) {
		return i, 0
	}
	return i, most(now, cost, i, worth, c)
}

// most is how many items the busy lanes complete, beyond what they have, in the time that lane i
// would take for one, times worth.
func most(now time.Duration, cost float64, i int, worth float64, c []Candidate) float64 {
	limit := expectation(&c[i], cost) * worth
	sum := 0.0
	for j := range c {
		k := &c[j]
		if j == i || !k.Full && (!k.Free || !k.covered()) || k.Rate <= 0 || k.Failures > 0 || !k.answers(now) {
			continue
		}
		// What it has when it takes the next one: one less.
		left := k.Work - k.Mean + float64(k.Service)*1e-9*k.Rate
		sum += max(0, limit*k.Rate-left)
	}
	return sum / cost
}

// covered says whether a lane has enough in flight not to idle for lack of a batch. Service will
// not do for that: where few are in flight and none waits, what is delivered in a round trip is
// what is in flight, and a slow worker that is near looks like a quick one that is far. A window
// that measures the drained round trip can tell; without one no lane is covered.
func (k *Candidate) covered() bool {
	if k.InFlight == 0 || k.Base <= 0 || k.Rate <= 0 || k.Mean <= 0 || k.Failures > 0 {
		return false
	}
	busy := float64(k.Base) * 1e-9 * k.Rate / k.Mean
	return float64(k.InFlight+1) > busy+max(coverLeast, coverRoot*math.Sqrt(busy))
}

// answers says whether something has come from a lane lately, or cannot have come yet.
func (k *Candidate) answers(now time.Duration) bool { return now-k.Heard <= silentAfter*k.Service }

// stale says whether a lane is idle for so long that it is to be measured again.
func (k *Candidate) stale(now time.Duration) bool {
	idle := now - k.Used
	return k.InFlight == 0 && idle > staleAfter && idle > staleRounds*k.Service
}
