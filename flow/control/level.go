//penstock:pure

package control

import (
	"math"
	"time"
)

// level remembers how many attempts in flight a worker refuses: CUBIC's W_max and BBR's
// inflight_hi, for receivers that answer an error where TCP's lose a packet.
//
// Errors also come by chance, at any level, and must not be taken for one. So each answer is kept
// with the number of attempts that were in flight when it was sent, and a level is believed when
// Wald's sequential test says so: that from there on at least half are refused, against the share
// that is refused below (Wald 1945). One attempt beyond it is sent now and then: if that is
// refused, the next waits twice as long; if it is taken, the level rises, faster and faster, until
// the window binds and the level is forgotten.
type level struct {
	recent [levelRecent]outcomeAt
	n      uint
	low    int // the lowest level that is suspected; 0: none
	// share of refusals directly after an accepted attempt: bursts are no evidence of chance
	chance float64
	seen   uint    // answers in chance, up to levelMany
	calm   bool    // the last one was taken
	score  float64 // how far the latest answers speak against chance (Page's cumulative sum, 1954)

	from   int           // refused from here on; 0: no level is known
	beyond float64       // attempts that were refused beyond it
	since  time.Duration // found, or confirmed
	wait   time.Duration // until the next try
	step   int
	trial  *attempt
}

type outcomeAt struct {
	level int32
	taken bool
}

const (
	levelRecent = 64
	// minimum share, of those that chance would let pass, that is refused beyond a level
	levelRefuses = 0.5
	levelSure    = 4.0 // logarithm of the odds
	levelLeast   = 0.02
	levelMost    = 0.95
	levelFew     = 32  // answers that the share which is refused by chance is a mean of, at least,
	levelMany    = 128 // and at most
	levelCut     = 3.0 // score from which a refusal narrows the window
	// times the share refused by chance, added to both: runs of chance are longer there
	levelCaution = 8.0
	levelWait    = 10 * time.Second
	levelRounds  = 100 // round trips, so that a try costs 1 % at most
	levelLongest = 5 * time.Minute
)

// taken takes in that an attempt was delivered.
func (v *level) taken(now time.Duration, a *attempt) {
	v.add(a, true)
	v.score = max(0, v.score+math.Log(levelRefuses))
	if v.trial == a {
		v.step = max(1, 2*v.step)
		v.from += v.step
		v.since = now - v.wait // the next follows at once
	}
}

// within forgets the level where the window ends below it.
func (v *level) within(window float64) {
	if v.from > 0 && float64(v.from) > window+1 {
		v.from, v.step = 0, 0
	}
}

// refused takes in a refusal. known: it was beyond a known level, or tells of one. lower: that is
// new.
func (v *level) refused(now time.Duration, a *attempt, rtt time.Duration) (known, lower bool) {
	speaks := refusedBeyond(v.byChance()) // as it stood before
	v.add(a, false)
	at := int(a.level)
	switch {
	case v.trial == a:
		if v.step > 0 { // it had risen
			v.step, v.wait = 0, 0
		}
		v.from = min(v.from, at)
		v.beyond++
		v.since, v.wait = now, min(max(2*v.wait, levelWait, levelRounds*rtt), levelLongest)
		return true, false
	case v.from > 0 && at >= v.from:
		return true, false
	case v.from > 0 && v.explained():
		v.from, v.step = 0, 0
	}
	if v.low == 0 || at < v.low || v.sure(v.low) <= 0 {
		v.low = at
	}
	if v.low > 1 && v.sure(v.low) > levelSure+v.caution() {
		wait := max(levelWait, levelRounds*rtt)
		if v.from > 0 {
			wait = max(wait, v.wait)
		}
		v.beyond = 0
		for _, o := range v.recent[:min(v.n, levelRecent)] {
			if !o.taken && int(o.level) >= v.low {
				v.beyond++
			}
		}
		v.from, v.since, v.wait, v.step, v.low, v.score = v.low, now, wait, 0, 0, 0
		return true, true
	}
	v.score = min(v.score+speaks, 2*v.cut())
	return false, false
}

func (v *level) add(a *attempt, taken bool) {
	v.recent[v.n%levelRecent] = outcomeAt{int32(a.level), taken}
	v.n++
	if v.calm {
		v.seen = min(v.seen+1, levelMany)
		share := 1.0
		if taken {
			share = 0
		}
		v.chance += (share - v.chance) / float64(max(v.seen, levelFew))
	}
	v.calm = taken
}

// forget drops the level and the answers, since the worker starts over. The share that is refused
// by chance stays.
func (v *level) forget() { *v = level{chance: v.chance, seen: v.seen} }

// distressed reports whether the worker refuses more than chance explains.
func (v *level) distressed() bool { return v.score >= v.cut() }

func (v *level) cut() float64 { return levelCut + v.caution() }

func (v *level) caution() float64 { return levelCaution * (v.byChance() - levelLeast) }

func (v *level) byChance() float64 { return min(max(v.chance, levelLeast), levelMost) }

// refusedBeyond is how far a refusal speaks for a level and against chance, as a logarithm. A
// delivery speaks for chance, by the logarithm of levelRefuses.
func refusedBeyond(chance float64) float64 { return math.Log((1 - levelRefuses*(1-chance)) / chance) }

// explained reports whether the present estimate of chance explains the refusals beyond the known
// level.
func (v *level) explained() bool {
	return v.beyond*refusedBeyond(v.byChance()) < levelSure/2
}

// sure is the logarithm of the odds that refusals begin at this level.
func (v *level) sure(from int) float64 {
	var takenBelow, refusedBelow, taken, refused float64
	for _, o := range v.recent[:min(v.n, levelRecent)] {
		switch below := int(o.level) < from; {
		case below && o.taken:
			takenBelow++
		case below:
			refusedBelow++
		case o.taken:
			taken++
		default:
			refused++
		}
	}
	if takenBelow == 0 {
		return 0
	}
	p := min(max((refusedBelow+0.5)/(takenBelow+refusedBelow+10), v.byChance()), levelMost)
	return refused*refusedBeyond(p) + taken*math.Log(levelRefuses)
}

// room is how many more may be in flight beside so many.
func (v *level) room(now time.Duration, flying int) int {
	if v.from == 0 {
		return math.MaxInt
	}
	n := v.from - 1 - flying
	if n == 0 && v.trial == nil && now >= v.since+v.wait {
		return 1
	}
	return n
}

// started marks an attempt that goes beyond the level as the one that tries it.
func (v *level) started(a *attempt) {
	if v.from > 0 && int(a.level) >= v.from && v.trial == nil {
		v.trial = a
	}
}

// levelGate leaves room up to the level of its lane.
type levelGate struct {
	fixed
	lane *lane
}

func newLevelGate(_ *lanes, l *lane) gate {
	if l.win.starter == nil {
		return nil
	}
	return &levelGate{lane: l}
}

func (g *levelGate) name() string { return g.lane.win.name() }

func (g *levelGate) room(now time.Duration) int {
	return max(0, g.lane.refuses.room(now, g.lane.win.load.n-g.lane.outs.suspects))
}
