//penstock:pure

package control

import (
	"math"
	"time"
)

// level remembers the number of attempts in flight from which a worker refuses. It corresponds to
// CUBIC's W_max and BBR's inflight_hi, for receivers that answer with an error where those of TCP
// lose a packet.
//
// Errors also come by chance, at any number in flight, and must not be taken for a level. So each
// answer is kept with the number of attempts that were in flight when its attempt was sent. A level
// is assumed when Wald's sequential test (1945) decides for it: at least half of the attempts from
// the level on are refused, and a smaller share below it.
//
// Now and then, one attempt beyond the level is sent as a trial. If nothing was delivered there
// yet, the first trial comes after a few round trips, because bad data may have caused the
// refusals. If a trial is refused, the next one waits twice as long. But if random failures are
// frequent, one refused trial shows little: further trials follow after one round trip each, until a
// series of refused ones is hardly random. If a trial is delivered, the level rises, by steps that double,
// until the window is the tighter limit and the level is dropped.
type level struct {
	recent [levelRecent]outcomeAt
	n      uint
	low    int // lowest level that is suspected; 0: none
	// estimated share of attempts that are refused by chance. Only attempts that follow a delivery, or
	// were alone at the worker, are counted, so that the refusals of a burst beyond the level do not
	// raise it much
	chance        float64
	answers       uint    // answers in chance, up to levelMany
	usual         float64 // minimum of chance, see [evidence.usualChance]
	lastDelivered bool    // the last attempt was delivered
	score         float64 // evidence of recent answers against chance (Page's cumulative sum, 1954)

	from   int           // the level: attempts are refused from here on; 0: unknown
	beyond float64       // attempts refused beyond the level
	since  time.Duration // when the level was found or confirmed
	wait   time.Duration // from since until the next trial
	step   int
	trial  *attempt
	denied int // trials in a row that were refused, until they confirm the level
}

type outcomeAt struct {
	level     int32
	delivered bool
}

const (
	levelRecent = 64
	// minimum share of refusals beyond a level, among the attempts that chance would let pass
	levelRefuses   = 0.5
	levelSure      = 4.0 // logarithm of the odds from which a level is assumed
	minLevelChance = 0.02
	maxLevelChance = 0.95
	levelFew       = 32  // minimum number of answers over which chance is averaged
	levelMany      = 128 // maximum number of these answers
	levelCut       = 3.0 // score from which a refusal narrows the window
	// maximum of score above the cut, so that two deliveries in a row end the distress
	maxLevelExcess = 1.0
	// The thresholds levelSure and levelCut are raised by levelCaution times the share of random
	// failures (above minLevelChance), because frequent random failures often come in a row.
	levelCaution = 8.0
	levelWait    = 10 * time.Second
	levelRounds  = 100 // minimum wait in round trips, so that a trial costs at most 1 %
	maxLevelWait = 5 * time.Minute
	// round trips until the first trial of a level at which nothing was delivered
	untestedRounds = 4
	// refused trials confirm the level if random failures refuse so many in a row with at most this
	// probability
	trialDoubt = 0.05
)

// deliveryEvidence is the counterpart of [refusalEvidence] for a delivery. It is negative, because
// a delivery suggests that the worker does not refuse from that number in flight on.
var deliveryEvidence = math.Log(levelRefuses)

// delivered notes the delivery of an attempt.
func (v *level) delivered(now time.Duration, a *attempt) {
	v.add(a, true)
	v.score = max(0, v.score+deliveryEvidence)
	if v.trial == a {
		v.denied = 0
		v.step = max(1, 2*v.step)
		v.from += v.step
		v.since = now - v.wait // the next trial follows at once
	}
}

// dropIfAbove drops the level if the window's limit is below it.
func (v *level) dropIfAbove(window float64) {
	if v.from > 0 && float64(v.from) > window+1 {
		v.drop()
	}
}

// drop drops the level. A trial that still runs says nothing about a later level.
func (v *level) drop() { v.from, v.step, v.trial = 0, 0, nil }

// refusalCause is the explanation of a refusal.
type refusalCause uint8

const (
	noLevel     refusalCause = iota // no level: chance, overload or a defect
	beyondLevel                     // the attempt was beyond the known level
	newLevel                        // the level that has just been found, with this refusal
)

// refused notes a refusal, and returns its explanation.
func (v *level) refused(now time.Duration, a *attempt, rtt time.Duration) refusalCause {
	chance := v.byChance() // before this answer
	v.add(a, false)
	at := int(a.level)
	switch {
	case v.trial == a:
		if v.denied++; math.Pow(chance, float64(v.denied)) > trialDoubt {
			v.since = max(v.since, now-v.wait+rtt) // the next trial follows after a round trip
		} else {
			v.trialRefused(now, a, rtt)
		}
		return beyondLevel
	case v.from > 0 && at >= v.from:
		return beyondLevel
	case v.from > 0 && v.explained():
		v.drop()
	}
	if v.low == 0 || at < v.low || v.logOdds(v.low) <= 0 {
		v.low = at
	}
	if v.low > 1 && v.logOdds(v.low) > levelSure+v.caution() {
		v.assumeLow(now, rtt)
		return newLevel
	}
	v.score = min(v.score+refusalEvidence(chance), v.cut()+maxLevelExcess)
	return noLevel
}

// assumeLow sets the level to the suspected one.
func (v *level) assumeLow(now, rtt time.Duration) {
	_, beyond := v.outcomes(v.low)
	v.beyond = beyond.refused
	wait := max(levelWait, levelRounds*rtt)
	switch {
	case v.from > 0:
		wait = max(wait, v.wait)
	case beyond.delivered == 0:
		wait = untestedRounds * rtt
	}
	v.assume(now, v.low, wait)
}

// trialRefused notes that the trial was refused.
func (v *level) trialRefused(now time.Duration, a *attempt, rtt time.Duration) {
	if v.step > 0 { // the level had risen since refused trials last confirmed it
		v.step, v.wait = 0, 0
	}
	v.from = min(v.from, int(a.level))
	v.beyond += float64(max(1, v.denied))
	v.denied = 0
	v.since, v.wait = now, min(max(2*v.wait, untestedRounds*rtt), maxLevelWait)
}

// assume sets the level. The first trial comes after the given time.
func (v *level) assume(now time.Duration, from int, wait time.Duration) {
	v.from, v.since, v.wait, v.step, v.low, v.score = from, now, wait, 0, 0, 0
	v.denied = 0
}

func (v *level) add(a *attempt, taken bool) {
	v.recent[v.n%levelRecent] = outcomeAt{int32(a.level), taken}
	v.n++
	if v.lastDelivered || a.level <= 1 {
		v.answers = min(v.answers+1, levelMany)
		share := 1.0
		if taken {
			share = 0
		}
		v.chance += (share - v.chance) / float64(max(v.answers, levelFew))
	}
	v.lastDelivered = taken
}

// reset drops the level (the number in flight from which the worker refuses) and the recorded
// answers, because the breaker of the worker has closed after an outage. It keeps the share of
// answers that are refused by chance.
func (v *level) reset() { *v = level{chance: v.chance, answers: v.answers} }

// isDistressed reports whether the worker refuses more than chance explains.
func (v *level) isDistressed() bool { return v.score >= v.cut() }

func (v *level) cut() float64 { return levelCut + v.caution() }

func (v *level) caution() float64 { return levelCaution * (v.byChance() - minLevelChance) }

func (v *level) byChance() float64 {
	return min(max(v.chance, v.usual, minLevelChance), maxLevelChance)
}

// refusalEvidence returns how strongly one refusal suggests that the worker refuses from a certain
// number in flight (a level), and not at random. The result is a log-likelihood ratio.
func refusalEvidence(chance float64) float64 { return math.Log((1 - levelRefuses*(1-chance)) / chance) }

// explained reports whether random failures alone explain the refusals beyond the known level,
// because the estimate of their share (chance) has grown since the level was found. The evidence
// must then be less than half of that from which a level is assumed.
func (v *level) explained() bool {
	return v.beyond*refusalEvidence(v.byChance()) < (levelSure+v.caution())/2
}

// outcomes are numbers of recent answers.
type outcomes struct{ delivered, refused float64 }

// outcomes counts the recent answers below the given level, and those from it on.
func (v *level) outcomes(from int) (below, beyond outcomes) {
	for _, o := range v.recent[:min(v.n, levelRecent)] {
		n := &beyond
		if int(o.level) < from {
			n = &below
		}
		if o.delivered {
			n.delivered++
		} else {
			n.refused++
		}
	}
	return below, beyond
}

// logOdds returns the logarithm of the odds that refusals begin at the given level.
func (v *level) logOdds(from int) float64 {
	below, beyond := v.outcomes(from)
	if below.delivered == 0 {
		return 0
	}
	p := min(max((below.refused+0.5)/(below.delivered+below.refused+10), v.byChance()), maxLevelChance)
	return beyond.refused*refusalEvidence(p) + beyond.delivered*deliveryEvidence
}

// room returns the number of further attempts that the level allows: those until the number in
// flight from which the worker refuses. The parameter flying is the number in flight now. See
// [placesFor] for widen.
func (v *level) room(now time.Duration, flying int, widen float64) int {
	if v.from == 0 {
		return math.MaxInt
	}
	n := placesFor(v.from-1, widen) - flying
	if n == 0 && v.trial == nil && now >= v.since+v.wait {
		return 1
	}
	return n
}

// started makes an attempt beyond the level the trial, if there is none.
func (v *level) started(a *attempt) {
	if v.from > 0 && int(a.level) >= v.from && v.trial == nil {
		v.trial = a
	}
}

// levelGate is the gate that leaves room up to the level of its lane.
type levelGate struct{ lane *lane }

func newLevelGate(_ *lanes, l *lane) gate {
	if l.win.starter == nil {
		return nil
	}
	return &levelGate{lane: l}
}

func (g *levelGate) name() string { return g.lane.win.name() }

func (g *levelGate) room(now time.Duration) int {
	win := &g.lane.win
	return max(0, g.lane.level.room(now, win.load.n-g.lane.onTime.lost.n, win.widening()))
}
