//penstock:pure

package control

import (
	"math"
	"slices"
	"time"
)

// blame separates bad data from bad workers by comparing first attempts with repeats. An item that
// has failed by chance fails again no more often than a new one, whereas bad data always fails. ADR
// 17 has the reasoning and the measurements.
//
// Let b be the share of bad data, and p the probability that a worker fails good data. An item that
// has failed k times is then bad with odds of b/(1-b) to p^k. Example: b = 1 %, p = 5 %. One
// failure gives odds of 0.2, two give 4, three give 81.
//
// The counts cover about the last 500 first attempts and the last 100 repeats. Only failures that
// are evidence count, see [evidence.recordFailure].
type blame struct {
	firstAttempts   float64 // first attempts
	firstDelivered  float64 // first attempts that delivered their items
	secondDelivered float64 // items delivered after one failure
	secondFailed    float64 // items that failed twice
	hangs           hangShare
}

// hangShare estimates the share of the attempts of all lanes that hang because of bad data. It
// covers about the last 500 deliveries. An attempt counts as soon as it is overdue and overtaken by
// one delivery, so the share is known before there is evidence against items.
type hangShare struct{ hung, delivered float64 }

func (s *hangShare) recordDelivery(late bool) {
	const keep = 1 - 1/blameMemory
	s.delivered = keep*s.delivered + 1
	if s.hung *= keep; late {
		s.hung = max(0, s.hung-1) // the attempt was only slow
	}
}

func (s *hangShare) share() float64 { return s.hung / (s.hung + s.delivered + 1) }

// inARow returns the number of consecutive attempts that all hang once in a hundred cases.
func (s *hangShare) inARow() int {
	share := min(s.share(), 0.99)
	if share < minChance {
		return 0
	}
	return int(math.Log(oneInAHundred) / math.Log(share))
}

const (
	blameMemory      = 500.0  // first attempts that the counts cover
	repeats          = 100.0  // repeats that secondDelivered and secondFailed cover
	repeatsAge       = 5000.0 // delivered first attempts after which repeats no longer count
	blameOdds        = 20.0   // least odds of a suspect
	maxBlameFailures = 12     // failures after which an item is a suspect regardless of the odds
	minChance        = 0.005  // of a failure: rare and correlated failures are underestimated
	maxChance        = 0.95
	muchBadData      = 0.25 // share of bad data, see [evidence.usualChance]
	pieceShare       = 0.5  // assumed share of bad pieces of a refused item

	oneInAMillion = 1e-6
	oneInAHundred = 1e-2
	maxStreak     = 256
	streakErrors  = 2.0 // standard errors added to the share of failing attempts

	// multiple of the failure rate of all lanes from which a lane fails much more often than they do
	ownFault   = 3
	laneMemory = 0.99 // decay of a lane's deliveries, per delivery
)

// observeFirst records the outcome of the first attempt of an item.
func (b *blame) observeFirst(delivered bool) {
	const keep, age = 1 - 1/blameMemory, 1 - 1/repeatsAge
	b.firstAttempts, b.firstDelivered = keep*b.firstAttempts+1, keep*b.firstDelivered
	if delivered {
		b.firstDelivered++
		b.secondDelivered, b.secondFailed = age*b.secondDelivered, age*b.secondFailed
	}
}

// observeSecond records the outcome of an item that had failed once.
func (b *blame) observeSecond(delivered bool) {
	const keep = 1 - 1/repeats
	b.secondDelivered, b.secondFailed = keep*b.secondDelivered, keep*b.secondFailed
	if delivered {
		b.secondDelivered++
	} else {
		b.secondFailed++
	}
}

// chance returns the probability that an attempt of good data fails, estimated from items that
// failed once. An item is good if its second attempt delivers it. The estimate is the number of
// good items that failed at first, divided by the number of items delivered at once.
//
// The estimate starts with one delivered second attempt, and as many failed ones as there would be
// if all failures were random. So all failures count as chance while there are no repeats, and a few
// failed repeats show little if most first attempts fail, too.
func (b *blame) chance() float64 { return max(minChance, b.observed()) }

// observed returns the same estimate as [blame.chance], but without the lower bound minChance.
func (b *blame) observed() float64 {
	prior := (b.firstAttempts + 1) / (b.firstDelivered + 1) // attempts for each delivery
	delivered := (b.secondDelivered + 1) / (b.secondDelivered + b.secondFailed + prior)
	return min(maxChance, delivered*(b.firstAttempts-b.firstDelivered)/(b.firstDelivered+1))
}

// share returns the measured share of bad data, 0 to 1. It is 0 if random failures explain all
// failed first attempts, or if there were no attempts yet.
func (b *blame) share() float64 {
	return max(0, 1-(b.firstDelivered+1)/(b.firstAttempts+1)/(1-b.chance()))
}

// failing returns the share of attempts that fail, because of bad data or by chance.
func (b *blame) failing() float64 {
	return max((b.firstAttempts-b.firstDelivered)/(b.firstAttempts+1), b.hangs.share())
}

// fault returns the probability that an item with the given number of failures is bad. The
// parameter share is the share of bad data.
func (b *blame) fault(failures int, share float64) float64 {
	odds := b.odds(failures, share)
	return odds / (1 + odds)
}

// streakLimit returns the number of consecutive failures of different items that chance and bad
// data would cause only once in a million items. The result is no less than the parameter least. If
// least is 0 or less, the result is least, since the breaker then ignores the number of failures.
func (b *blame) streakLimit(least int) int {
	if least <= 0 {
		return least
	}
	q, n := b.failing(), b.firstAttempts+b.hangs.hung
	q = max(q+streakErrors*math.Sqrt(q*(1-q)/(n+1)), 1/(n+2))
	run := math.Log(oneInAMillion) / math.Log(min(max(q, minChance), 0.99))
	return max(least, int(math.Ceil(min(maxStreak, run))))
}

// probeLimit returns the number of consecutive probes that chance and bad data would make fail only
// once in a hundred cases. Fewer failures do not show that a worker is still down.
func (b *blame) probeLimit() int {
	q := min(b.failing(), 0.9)
	return int(math.Ceil(max(1, math.Log(oneInAHundred)/math.Log(max(q, minChance)))))
}

// odds returns the odds that an item with the given number of failures is bad, given the share of
// bad data.
func (b *blame) odds(failures int, share float64) float64 {
	return share / max(1-share, 1e-6) / math.Pow(b.chance(), float64(failures))
}

// account is the evidence that an item, and not its workers, is to blame for its failures.
type account struct {
	deaths       int
	piece        bool // it is a piece of an item refused as poison: one death is enough to cut it
	indivisible  bool // it cannot be cut
	suspect      bool // it fails although its workers deliver others
	givenUp      bool // Config.End gives it up
	firstCounted bool // its first attempt is counted as failed
	class        uint8

	retrying bool // in backlog.retrying
	returned returned

	failures int           // that are evidence
	since    time.Duration // lanes.uptime at the first of them
}

// limit returns the number of worker deaths after which the item is refused. It is n, or 1 for a
// piece that can be cut further. Such a piece comes from an item that was refused as poison, so one
// of the pieces is expected to kill again.
func (r *account) limit(n int) int {
	if r.piece && !r.indivisible {
		return 1
	}
	return n
}

// failure is one piece of evidence against an item.
type failure struct {
	lane int32
	at   time.Duration
}

// pendingFailure is a failed attempt that becomes evidence against its item if the lane delivers
// enough other items, see [evidence.recordFailure].
type pendingFailure struct {
	itemRef
	sent   time.Duration // deliveries count if their attempts were sent after this time
	until  time.Duration // and no later than this time,
	failed time.Duration // or if the lane had sent nothing since this time
	need   int           // further deliveries needed
	first  bool
}

// laneFailures holds the pending failures of one lane.
type laneFailures struct {
	pending    []pendingFailure
	deliveries float64          // deliveries, decayed
	goodFailed float64          // failures of items that were delivered later, decayed
	window     weightedFailures // weighted failures that the window has not counted yet
	breaker    weightedFailures // weighted failures that the breaker has not counted yet
}

// recordDelivery notes a delivery by the lane.
func (d *laneFailures) recordDelivery() {
	d.deliveries, d.goodFailed = laneMemory*d.deliveries+1, laneMemory*d.goodFailed
}

// chance returns the share of good data that the lane fails.
func (d *laneFailures) chance() float64 { return d.goodFailed / (d.deliveries + d.goodFailed + 1) }

// failsMore reports whether l fails good data much more often than all lanes do.
func (ev *evidence) failsMore(l *lane) bool {
	return l.failures.chance() > ownFault*ev.blame.chance()
}

// usualChance returns the share of random failures that a lane must exceed to count as overloaded.
// If more than a quarter of the data is bad, it is the share of all lanes. The failures that count
// against a lane are weighted by that share (see [evidence.countFailure]). So if the estimate of it
// rises, more failures count although no lane has changed. With less bad data it is 0, because
// nearly all failures count then, and an overload of all lanes raises their share, too.
func (ev *evidence) usualChance() float64 {
	if ev.blame.share() > muchBadData {
		return ev.blame.chance()
	}
	return 0
}

// weightedFailures adds up the failures of a lane, each with a weight from 0 to 1, because the item
// may be at fault. When the sum reaches countedFrom, one whole failure is counted and subtracted.
type weightedFailures float64

const (
	maxPendingFailures = 256
	maxFailures        = 16 // failures that an item remembers
	pendingRounds      = 2  // round trips after a failure in which the delivered item must be sent
	timeoutRounds      = 8  // the same after an overdue attempt, which needs three deliveries
	repeatRounds       = 4  // round trips in which failures at one lane count once
	overtaken          = 3  // deliveries that must overtake an overdue attempt
	countedFrom        = 0.75
	// weight with which a failed repeat of an item counts against the breaker if there is bad data.
	// In an outage new items fail, too, and they count in full.
	repeatWeight    = 0.25
	minFailingShare = 0.005 // least share of failing attempts for repeatWeight
)

// count adds a failure with a weight from 0 to 1. If the sum of the weights reaches countedFrom,
// count subtracts 1 and returns true: the caller must count one whole failure.
func (p *weightedFailures) count(weight float64) bool {
	if *p += weightedFailures(weight); *p < countedFrom {
		return false
	}
	*p = max(0, *p-1)
	return true
}

// evidence decides whether a failure is the fault of the item or of the worker.
type evidence struct {
	*env
	lanes   *lanes
	backlog *backlog
	blame   blame
}

// countFailure notes that attempt a failed or became overdue. The results window and breaker
// report whether the failure counts against the window and the breaker of its lane. A failed probe
// counts against both. Any other failure counts against neither if the data is to blame. But a
// failed first attempt of a new item always counts against the breaker, see [blame.streakLimit].
func (ev *evidence) countFailure(a *attempt, why Outcome) (window, breaker bool) {
	evident := ev.recordFailure(a, why)
	r, d := &a.item.account, &a.lane.failures
	switch {
	case ev.isProbe(a):
		return true, true
	case r.suspect || a.ofSuspect:
		return false, false
	case a.ordered:
		return true, true
	}
	before, share := r.failures, ev.blame.share()
	if evident {
		before--
	}
	weight := 1 - ev.blame.fault(before, share)
	switch {
	case before == 0 && (a.item.number == 1 || !a.lane.est.known ||
		ev.blame.failing() < minFailingShare):
		weight = 1
	case before == 0:
		weight = repeatWeight
	}
	data := ev.blame.fault(before+1, share)
	return d.window.count(1 - data), d.breaker.count(weight)
}

// isProbe reports whether attempt a is a probe of its paused lane, or of the global backoff.
func (ev *evidence) isProbe(a *attempt) bool {
	return a.lane.br.isProbe(a) || a.isProbe && ev.lanes.global.active
}

// recordFailure notes that attempt a has just failed or become overdue. It reports whether the
// failure is already evidence against its item.
//
// A failure is evidence against the item only if the same lane delivers another item. That item
// must have been sent after the failed attempt, and at most two round trips after the failure. On a
// lane with little traffic it may be sent later, if it is the first one sent after the failure, and
// no probe. An overdue attempt must be overtaken by three deliveries, sent at most eight round
// trips after it became overdue. So an outage gives no evidence in its first moments. At its end it
// gives at most one piece, and none if the breaker has opened. Failures at one lane within four
// round trips are one piece of evidence. Hedges, canceled attempts and Ordered lanes give none, and
// neither do deaths of workers, which are counted separately.
func (ev *evidence) recordFailure(a *attempt, why Outcome) (evident bool) {
	it, l := a.item, a.lane
	awaitsPieces := it.state == isPending && a.outcome == Split
	if !it.isActive() && !awaitsPieces {
		return false
	}
	poison := &ev.cfg.Poison
	if poison.Failures < 0 || a.died && poison.Deaths > 0 || a.failureRecorded || a.isHedge ||
		a.canceled || a.ordered {
		return false
	}
	a.failureRecorded = true
	rtt := l.est.smoothed()
	if !l.est.known { // the first delivery may still confirm it
		rtt = initialRTO
	}
	first := it.rank.width == 0
	need, rounds := 1, time.Duration(pendingRounds)
	evident = l.onTime.newest > a.id
	if why == TimedOut {
		need, rounds = overtaken, timeoutRounds
		evident = overtakenThrice(a, a.overtaken)
	}
	switch {
	case evident:
		return ev.addEvidence(it, l, first)
	case len(l.failures.pending) < maxPendingFailures:
		l.failures.pending = append(l.failures.pending,
			pendingFailure{it.ref(), a.sent, ev.now + rounds*rtt, ev.now, need, first})
	}
	return false
}

// overtakenThrice reports whether attempt a was overtaken by three deliveries of its own size. The
// parameter cost is the sum of the delivered costs of attempts that were sent later. It must be at
// least three times the cost of attempt a.
func overtakenThrice(a *attempt, cost float64) bool { return cost >= overtaken*a.cost-1e-6 }

// confirmFailures is called after attempt a was delivered. It turns pending failures of its lane
// into evidence, and drops those that no delivery can confirm any more.
func (ev *evidence) confirmFailures(a *attempt) {
	d := &a.lane.failures
	d.recordDelivery()
	if len(d.pending) == 0 {
		return
	}
	kept := d.pending[:0]
	for _, o := range d.pending {
		switch {
		case !o.isActive() || o.item == a.item:
		case a.sent > o.until && (a.previous > o.failed || ev.isProbe(a)):
		case a.sent <= o.sent:
			kept = append(kept, o)
		case o.need > 1:
			o.need--
			kept = append(kept, o)
		default:
			ev.addEvidence(o.item, a.lane, o.first)
		}
	}
	clear(d.pending[len(kept):])
	d.pending = kept
}

// addEvidence adds a failure at l to the evidence against the item, and makes the item a suspect if
// that is enough. It returns false if the failure repeats recent evidence from l.
func (ev *evidence) addEvidence(it *item, l *lane, first bool) bool {
	r := &it.account
	if first && !r.firstCounted {
		r.firstCounted = true
		ev.blame.observeFirst(false)
	}
	for _, f := range it.failures {
		if f.lane == l.num && ev.now-f.at < repeatRounds*l.est.smoothed() {
			return false
		}
	}
	if r.failures == 0 {
		r.since = ev.lanes.uptime.at(ev.now)
	}
	if r.failures++; r.failures == 2 && r.firstCounted {
		ev.blame.observeSecond(false)
	}
	if len(it.failures) < maxFailures {
		it.failures = append(it.failures, failure{l.num, ev.now})
	}
	ev.assess(it)
	if e := &ev.cfg.End; !r.givenUp && e.reached(r, ev.lanes.uptime.at(ev.now)) {
		r.givenUp = true
		ev.backlog.suspects.toGiveUp = append(ev.backlog.suspects.toGiveUp, it.ref())
	}
	return true
}

// assess makes the item a suspect if the evidence against it is enough. If the item waits for a
// retry, it then waits with the other suspects, which are attempted rarely.
func (ev *evidence) assess(it *item) {
	r := &it.account
	least := ev.cfg.Poison.Failures
	if r.suspect || r.failures == 0 || least < 0 ||
		!ev.blame.enoughEvidence(it, least, ev.lanes.inUse()) {
		return
	}
	r.suspect = true
	ev.backlog.suspects.unsettled++
	if it.state == inRetry || it.state == inDelay {
		due := max(ev.now, it.due)
		if !it.waited {
			due = ev.now + ev.backlog.retryWait(it)
		}
		ev.backlog.leave(it)
		ev.backlog.waitAsSuspect(it, due)
	}
}

// enoughEvidence reports whether the evidence against the item is enough to make it a suspect. The
// item needs the given number of failures (least), but no fewer than two. If at least two lanes are
// in use, two lanes must have failed it. For a piece that may be cut further, one failure is
// enough. In addition the odds must be high enough, unless the item has failed maxBlameFailures
// times.
func (b *blame) enoughEvidence(it *item, least, lanesInUse int) bool {
	r := &it.account
	least, share := max(2, least), max(b.share(), 1/(b.firstAttempts+2))
	if r.piece {
		share = pieceShare
		if !r.indivisible {
			least = 1
		}
	}
	lanes := 0
	for i, f := range it.failures {
		again := slices.ContainsFunc(it.failures[:i], func(o failure) bool { return o.lane == f.lane })
		lanes += one(!again)
	}
	return r.failures >= least && lanes >= min(2, least, lanesInUse) &&
		(r.failures >= maxBlameFailures || b.odds(r.failures, share) >= blameOdds)
}

// recordDelivery counts the delivery of the item by attempt a as the outcome of its first or second
// attempt. It counts no pieces, and no items with two or more failures that are evidence.
//
// It also leaves out the first delivery of each lane. The failures of a lane count only after the
// lane has delivered once. So even a lane that nearly always fails counts with one delivery, which
// would make the share of failures too low (inverse binomial sampling).
func (b *blame) recordDelivery(it *item, a *attempt) {
	switch r := &it.account; {
	case it.rank.width != 0: // the first attempt of a piece is not that of an offered item
	case it.number == 1 && r.firstCounted && a.overdue: // counted as failed, but was only slow
		b.firstDelivered++
	case it.number == 1 && !r.firstCounted && a.lane.stats.delivered > 1:
		b.observeFirst(true)
	case r.firstCounted && r.failures == 1:
		b.observeSecond(true)
	}
}
