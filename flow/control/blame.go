//penstock:pure

package control

import (
	"math"
	"time"
)

// blame separates bad data from bad workers by comparing first attempts with repeats. Chance fails
// an item that has failed before no more often than a fresh one, and bad data always fails. ADR 17
// has the reasoning and the measurements.
//
// Let b be the share of bad data, and p the probability that a worker fails good data. An item that
// has failed k times is then bad with odds of b/(1-b) to p^k. Example: b = 1 %, p = 5 %. One
// failure gives odds of 0.2, two give 4, three give 81.
//
// The counts cover about the last 500 first attempts, or 100 repeats. Only failures that are
// evidence count, see [evidence.charge].
type blame struct {
	first  float64 // first attempts
	atOnce float64 // of them, delivered
	second float64 // items delivered after one failure
	twice  float64 // items that failed again
}

const (
	blameMemory = 500.0  // first attempts
	repeats     = 100.0  // in second and twice
	repeatsAge  = 5000.0 // first attempts after which they are forgotten
	blameOdds   = 20.0   // from which on an item is a suspect
	blameMost   = 12     // failures, from which on it is one whatever the odds
	leastChance = 0.005  // of failure, as that of rare and correlated failures is underestimated
	mostChance  = 0.95
	pieceShare  = 0.5 // of the pieces of a suspect are bad

	oneInAMillion = 1e-6
	mostStreak    = 256
	streakErrors  = 2.0 // standard errors of the share that fails are added to it

	ownFault   = 3    // times the chance of all lanes, from which on a lane's own chance counts
	laneMemory = 0.99 // decay of a lane's deliveries, per delivery
)

// observeFirst takes in the first attempt of an item.
func (b *blame) observeFirst(delivered bool) {
	const keep, age = 1 - 1/blameMemory, 1 - 1/repeatsAge
	b.first, b.atOnce, b.second, b.twice = keep*b.first+1, keep*b.atOnce, age*b.second, age*b.twice
	if delivered {
		b.atOnce++
	}
}

// observeSecond records the outcome of an item that had failed once.
func (b *blame) observeSecond(delivered bool) {
	const keep = 1 - 1/repeats
	b.second, b.twice = keep*b.second, keep*b.twice
	if delivered {
		b.second++
	} else {
		b.twice++
	}
}

// chance returns the chance that an attempt of good data fails. Of F items that failed at once,
// good ones are those that the second attempt delivers, and so many of them failed for each that
// did not. Until repeats fail, all is chance.
func (b *blame) chance() float64 { return max(leastChance, b.observed()) }

// observed is chance without its least value.
func (b *blame) observed() float64 {
	delivered := (b.second + 1) / (b.second + b.twice + 1)
	return min(mostChance, delivered*(b.first-b.atOnce)/(b.atOnce+1))
}

// share returns the measured share of bad data, 0 to 1. It is 0 where chance explains all failures,
// and without data.
func (b *blame) share() float64 { return max(0, 1-(b.atOnce+1)/(b.first+1)/(1-b.chance())) }

// failing is the share of first attempts that fails, of bad data or by chance.
func (b *blame) failing() float64 { return (b.first - b.atOnce) / (b.first + 1) }

// fault returns the probability that an item with so many failures is bad. The last failure was at
// a lane that fails this share of good data.
func (b *blame) fault(failures int, share, atLane float64) float64 {
	odds := b.odds(failures, share)
	if p := b.chance(); failures > 0 && atLane > ownFault*p {
		odds *= p / atLane
	}
	return odds / (1 + odds)
}

// streak returns how many failures in a row of different items are more than bad data and chance
// make once in a million items, and least at the least.
func (b *blame) streak(least int) int {
	if least <= 0 {
		return least
	}
	q := b.failing()
	q = max(q+streakErrors*math.Sqrt(q*(1-q)/(b.first+1)), 1/(b.first+2))
	n := math.Log(oneInAMillion) / math.Log(min(max(q, leastChance), 0.99))
	return max(least, int(math.Ceil(min(mostStreak, n))))
}

// odds returns the odds that an item with so many failures is bad, if this share of the data is.
func (b *blame) odds(failures int, share float64) float64 {
	return share / max(1-share, 1e-6) / math.Pow(b.chance(), float64(failures))
}

// account is the evidence against an item.
type account struct {
	deaths  int
	piece   bool // of an item that was refused as poison: one death is enough to cut it
	whole   bool // it cannot be cut
	suspect bool // set apart
	ended   bool // Config.End gives it up
	first   bool // it counts among the first attempts that failed
	class   uint8

	retrying bool // in backlog.retrying
	returned returned

	failures int           // that are evidence
	since    time.Duration // lanes.uptime at the first of them
}

// limit returns how many deaths refuse the item, of n for one about which nothing is known.
func (r *account) limit(n int) int {
	if r.piece && !r.whole {
		return 1
	}
	return n
}

// failure is one piece of evidence against an item.
type failure struct {
	lane int32
	at   time.Duration
}

// doubt is a failure that becomes evidence if its lane delivers another item that was sent early
// enough.
type doubt struct {
	item  *item
	seq   uint64
	sent  time.Duration // only deliveries of items sent after this,
	until time.Duration // and not after this, count
	need  int           // deliveries that are missing
	first bool
}

// doubts are those of one lane.
type doubts struct {
	open    []doubt
	good    float64 // deliveries, decayed
	wrong   float64 // failures of items that were delivered later, likewise
	window  part    // failures, of less than one each, that the window has not counted
	breaker part
}

// delivered takes in a delivery of the lane.
func (d *doubts) delivered() { d.good, d.wrong = laneMemory*d.good+1, laneMemory*d.wrong }

// chance returns the share of good data that the lane fails.
func (d *doubts) chance() float64 { return d.wrong / (d.good + d.wrong + 1) }

// failsMore reports whether l fails good data much more often than all lanes do.
func (ev *evidence) failsMore(l *lane) bool { return l.doubts.chance() > ownFault*ev.blame.chance() }

// part is the remaining share of counted failures.
type part float64

const (
	maxDoubts     = 256
	maxFailures   = 16 // number of lanes an item remembers that have failed it
	doubtRounds   = 2  // round trips after a failure in which the delivered item must be sent
	timeoutRounds = 8  // the same for an overdue attempt, which takes three deliveries
	repeatRounds  = 4  // round trips in which failures at one lane count once
	overtaken     = 3  // deliveries that were sent after an overdue attempt
	countedFrom   = 0.75
	// of a repeat, for the breaker, if there is bad data: in an outage new items fail as well
	repeatWeight = 0.25
	repeatLeast  = 0.005 // share of bad data from which on that holds
)

// count reports whether a failure of this weight counts, alone or with those before it.
func (p *part) count(weight float64) bool {
	if *p += part(weight); *p < countedFrom {
		return false
	}
	*p = max(0, *p-1)
	return true
}

// evidence tells failures of data from failures of workers.
type evidence struct {
	*env
	lanes   *lanes
	backlog *backlog
	blame   blame
}

// faults takes in that a failed or became overdue, and reports whether that counts for the window
// and the breaker of its lane: not where the data is to blame. For the breaker the first failure of
// an item counts, see [blame.streak].
func (ev *evidence) faults(a *attempt, why Outcome) (window, breaker bool) {
	evident := ev.charge(a, why)
	r, d := &a.item.account, &a.lane.doubts
	switch {
	case a == a.lane.br.probe || a == ev.lanes.global.probe:
		return true, true
	case r.suspect || a.apart:
		return false, false
	case a.ordered:
		return true, true
	}
	before, share := r.failures, ev.blame.share()
	if evident {
		before--
	}
	weight := 1 - ev.blame.fault(before, share, d.chance())
	switch {
	case before == 0 && (a.item.number == 1 || !a.lane.est.known || ev.blame.failing() < repeatLeast):
		weight = 1
	case before == 0:
		weight = repeatWeight
	}
	data := ev.blame.fault(before+1, share, d.chance())
	return d.window.count(1 - data), d.breaker.count(weight)
}

// charge records that a, which has just failed or become overdue, was not delivered. It reports
// whether that is evidence against its item already.
//
// A failure is evidence against the item only if the same lane delivers another one that was sent
// after it, within two round trips of its end. An overdue attempt must be overtaken by three. So an
// outage gives no evidence, not even in its first moments. Failures at one lane within four round
// trips are one piece of evidence. Hedges, canceled attempts and Ordered lanes give none, and
// neither do deaths of workers, which are counted separately.
func (ev *evidence) charge(a *attempt, why Outcome) (evident bool) {
	it, l := a.item, a.lane
	over := it.state == isDone || it.state == inHands && a.outcome != Split
	poison := &ev.cfg.Poison
	if poison.Failures < 0 || a.died && poison.Deaths > 0 || a.charged || a.twin || a.canceled || a.ordered || over {
		return false
	}
	a.charged = true
	rtt := l.est.smoothed()
	first := it.rank.width == 0
	need, rounds := 1, time.Duration(doubtRounds)
	evident = l.outs.delivered > a.sent
	if why == TimedOut {
		need, rounds = overtaken, timeoutRounds
		evident = overtakenThrice(a)
	}
	switch {
	case !l.est.known:
	case evident:
		return ev.accuse(it, l, first)
	case len(l.doubts.open) < maxDoubts:
		l.doubts.open = append(l.doubts.open, doubt{it, it.seq, a.sent, ev.now + rounds*rtt, need, first})
	}
	return false
}

// overtakenThrice reports whether three attempts that were sent after a have been delivered.
func overtakenThrice(a *attempt) bool {
	later := a.lane.est.delivered - a.progress - (a.ahead - a.cost) // cost of them
	return later >= overtaken*a.cost-1e-6
}

// settleDoubts turns the failures at the lane of a, which was delivered, into evidence, or drops
// them.
func (ev *evidence) settleDoubts(a *attempt) {
	d := &a.lane.doubts
	d.delivered()
	if len(d.open) == 0 {
		return
	}
	kept := d.open[:0]
	for _, o := range d.open {
		switch live := o.item.seq == o.seq && o.item.state != isDone && o.item.state != isFree &&
			o.item.state != inHands; {
		case !live || o.item == a.item || a.sent > o.until:
		case a.sent <= o.sent:
			kept = append(kept, o)
		case o.need > 1:
			o.need--
			kept = append(kept, o)
		default:
			ev.accuse(o.item, a.lane, o.first)
		}
	}
	clear(d.open[len(kept):])
	d.open = kept
}

// accuse adds a piece of evidence against it, and reports whether it is one. If that is enough the
// item is set apart.
func (ev *evidence) accuse(it *item, l *lane, first bool) bool {
	r := &it.account
	if first && !r.first {
		r.first = true
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
	if r.failures++; r.failures == 2 && r.first {
		ev.blame.observeSecond(false)
	}
	if len(it.failures) < maxFailures {
		it.failures = append(it.failures, failure{l.num, ev.now})
	}
	ev.judge(it)
	if e := &ev.cfg.End; !r.ended && e.reached(r, ev.lanes.uptime.at(ev.now)) {
		r.ended = true
		ev.backlog.apart.ended = append(ev.backlog.apart.ended, ended{it, it.seq})
	}
	return true
}

// judge makes it a suspect if the evidence is enough. If it waits, it waits among the suspects from
// now on.
func (ev *evidence) judge(it *item) {
	r := &it.account
	least := ev.cfg.Poison.Failures
	if r.suspect || r.failures == 0 || least < 0 || !ev.blame.convicts(it, least, len(ev.lanes.up)) {
		return
	}
	r.suspect = true
	ev.backlog.apart.suspects++
	if it.state == inRedo || it.state == inDelay {
		due := max(ev.now, it.due)
		if !it.waited {
			due = ev.now + ev.backlog.retryWait(it)
		}
		ev.backlog.leave(it)
		ev.backlog.setApart(it, due)
	}
}

// convicts reports whether the evidence against it is enough to set it apart: at least this many
// failures, of two lanes if there are so many.
func (b *blame) convicts(it *item, least, lanesUp int) bool {
	r := &it.account
	least, share := max(2, least), max(b.share(), 1/(b.first+2))
	if r.piece {
		share = pieceShare
		if !r.whole {
			least = 1
		}
	}
	lanes := 0
	for i, f := range it.failures {
		again := false
		for _, o := range it.failures[:i] {
			again = again || o.lane == f.lane
		}
		lanes += one(!again)
	}
	return r.failures >= least && lanes >= min(2, least, lanesUp) &&
		(r.failures >= blameMost || b.odds(r.failures, share) >= blameOdds)
}

// acknowledge takes in that it was delivered.
func (b *blame) acknowledge(it *item, late bool) {
	switch r := &it.account; {
	case it.rank.width != 0: // a piece says nothing about first attempts
	case it.number == 1 && r.first && late: // it had only taken long
		b.atOnce++
	case it.number == 1 && !r.first:
		b.observeFirst(true)
	case r.first && r.failures == 1:
		b.observeSecond(true)
	}
}
