package control

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// TestLevelIsFound checks that a burst of attempts finds the number beyond which a worker refuses,
// for any such number.
func TestLevelIsFound(t *testing.T) {
	for _, limit := range []int{2, 3, 8, 20, 60} {
		var v level
		for burst := 1; burst < 4*limit && v.from == 0; burst *= 2 {
			for at := 1; at <= burst; at++ {
				a := &attempt{level: at}
				if at <= limit {
					v.delivered(0, a)
				} else {
					v.refused(0, a, time.Millisecond)
				}
			}
		}
		if v.from != limit+1 {
			t.Errorf("a worker that takes %d is thought to refuse from %d on", limit, v.from)
		}
		if got := v.room(time.Millisecond, limit, 1); got != 0 {
			t.Errorf("room for %d beside %d, want none before a try is due", got, limit)
		}
		if got := v.room(untestedRounds*time.Millisecond, limit, 1); got != 1 {
			t.Errorf("room for %d beside %d after %d round trips, want one to try", got, limit,
				untestedRounds)
		}
	}
}

// TestChanceIsNoLevel checks refusals that are equally frequent at any number in flight. Even if
// they are frequent, no level must be found, which is a number in flight from which the worker
// refuses.
func TestChanceIsNoLevel(t *testing.T) {
	for _, share := range []float64{0.01, 0.05, 0.2} {
		rnd := rand.New(rand.NewPCG(1, uint64(share*100)))
		var v level
		found := 0
		for range 20_000 {
			a := &attempt{level: 1 + rnd.IntN(20)}
			if rnd.Float64() >= share {
				v.delivered(0, a)
			} else if v.refused(0, a, time.Millisecond) == newLevel {
				found++
				v.from = 0
			}
		}
		if most := 20_000 * share / 20; float64(found) > most {
			t.Errorf("%v refused by chance: a level was found %d times, want %v at most", share, found, most)
		}
		if v.chance < share/4 || v.chance > 3*share+0.02 {
			t.Errorf("%v are refused by chance, %v are thought to be", share, v.chance)
		}
	}
}

// TestRefusalsAlone checks that a worker which fails nine of ten attempts, although each is alone at
// the worker, is not distressed after 300 answers. No number in flight can be the cause, so these
// failures are random, or bad data.
func TestRefusalsAlone(t *testing.T) {
	var v level
	for i := range 300 {
		a := &attempt{level: 1}
		if i%10 == 9 {
			v.delivered(0, a)
		} else {
			v.refused(0, a, time.Millisecond)
		}
	}
	if v.chance < 0.7 || v.isDistressed() {
		t.Errorf("chance is %.2f, want at least 0.7; distressed: %v, want false", v.chance,
			v.isDistressed())
	}
}

// TestLevelOfRandomFailuresEnds checks a level that was found from four refusals in a row, before
// it was known that the worker fails 30 % of all attempts by chance. The level must end when this
// share is known, because four refusals are then too little evidence.
func TestLevelOfRandomFailuresEnds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var v level
	v.assume(0, 3, levelWait)
	v.beyond = 4
	for i := 0; v.from > 0; i++ {
		if i == 400 {
			t.Fatalf("the level is still known after %d answers", i)
		}
		a := &attempt{level: 1 + i%2}
		if rnd.Float64() < 0.3 {
			v.refused(0, a, time.Millisecond)
		} else {
			v.delivered(0, a)
		}
	}
}

// TestLevelIsTriedRarely checks trials: attempts sent beyond the level, the number in flight from
// which the worker refuses. A refused trial must double the wait for the next one, and a delivered
// trial must raise the level.
func TestLevelIsTriedRarely(t *testing.T) {
	v := level{from: 6, wait: levelWait}
	now := time.Duration(0)
	for want := 2 * levelWait; want <= maxLevelWait/2; want *= 2 {
		now += v.wait
		a := &attempt{level: 6}
		v.started(a)
		if v.trial != a {
			t.Fatalf("the attempt beyond the level is no try")
		}
		v.refused(now, a, time.Millisecond)
		v.trial = nil
		if v.wait != want || v.from != 6 {
			t.Fatalf("after a refusal the next try waits %v at level %d, want %v at 6", v.wait, v.from, want)
		}
	}
	for _, want := range []int{7, 9, 13} {
		a := &attempt{level: v.from}
		v.started(a)
		v.delivered(now, a)
		v.trial = nil
		if v.from != want || v.room(now, want-1, 1) != 1 {
			t.Fatalf("the level rose to %d with room for %d, want %d and one more at once", v.from,
				v.room(now, want-1, 1), want)
		}
	}
}

// TestRandomlyRefusedTrials checks a level while 30 % of all attempts fail at random. Two refused
// trials in a row are then no evidence for the level, so the next trial follows after a round trip.
// The third one doubles the wait. A delivered trial starts the count over.
func TestRandomlyRefusedTrials(t *testing.T) {
	const now, wait, rtt = levelWait, levelWait, time.Millisecond
	v := level{from: 6, wait: wait, chance: 0.3, answers: levelMany}
	try := func(refused bool) {
		a := &attempt{level: v.from}
		v.started(a)
		if refused {
			v.refused(now, a, rtt)
		} else {
			v.delivered(now, a)
		}
		v.trial = nil
	}
	for _, delivered := range []bool{false, true} {
		if delivered {
			try(true)
			try(true)
			try(false)
			v.from, v.step, v.wait = 6, 0, wait
		}
		for n := range 2 {
			if try(true); v.wait != wait || v.room(now, 5, 1) != 0 || v.room(now+rtt, 5, 1) != 1 {
				t.Fatalf("after %d refused trials the next one waits %v, want %v", n+1,
					v.since+v.wait-now, rtt)
			}
		}
		if try(true); v.wait != 2*wait || v.room(now+rtt, 5, 1) != 0 || v.from != 6 {
			t.Fatalf("after three refused trials the next one waits %v at level %d, want %v at 6",
				v.since+v.wait-now, v.from, 2*wait)
		}
	}
	a := &attempt{level: v.from}
	v.trial = a
	v.assume(now, 4, wait)
	v.refused(now, a, rtt)
	if v.trial = nil; v.room(now+rtt, 3, 1) != 0 {
		t.Error("a refused trial of an earlier level ends the wait of a new one")
	}
}

// TestLevelOfAWidenedWindow checks a level (the number in flight from which the worker refuses)
// while the window is widened to make up for attempts that hang. All attempts for which the level
// has room must count as below the level, and the next attempt as a trial.
func TestLevelOfAWidenedWindow(t *testing.T) {
	for _, widen := range []float64{0, 1, 1.3, 2, 2.7, 10} {
		for from := 2; from < 40; from++ {
			v, win := level{from: from, wait: levelWait}, windowGate{widen: widen}
			n := 0
			for v.room(0, n, widen) > 0 {
				n++
				if at := win.atWorker(n); at >= from {
					t.Fatalf("widening %v, level %d: attempt %d counts as %d", widen, from, n, at)
				}
			}
			if n < from-1 || v.room(levelWait, n, widen) != 1 || win.atWorker(n+1) < from {
				t.Errorf("widening %v, level %d: the trial after %d attempts counts as %d",
					widen, from, n, win.atWorker(n+1))
			}
		}
	}
}

// TestTrialOfADroppedLevel checks a trial, an attempt that tests whether the level has risen. If
// the level is dropped before the trial is answered, the answer must set no level, and must not end
// the trial of a later level.
func TestTrialOfADroppedLevel(t *testing.T) {
	v, first, second := level{}, &attempt{level: 6}, &attempt{level: 9}
	v.assume(0, 6, levelWait)
	v.started(first)
	v.dropIfAbove(4)
	v.delivered(levelWait, first)
	if v.from != 0 {
		t.Errorf("the trial of the dropped level has set level %d", v.from)
	}
	v.assume(levelWait, 9, levelWait)
	v.beyond = 100
	v.started(second)
	if v.refused(levelWait, first, 0); v.from != 9 || v.trial != second {
		t.Errorf("the trial of the dropped level has ended that of level 9: level %d", v.from)
	}
}

// TestTimeoutsInARow checks that overdue attempts in a row lengthen the timeout of the worker. They
// lengthen it less, or not at all, if so many attempts hang at all workers that such a row is
// expected. Each expected one allows one more attempt in flight.
func TestTimeoutsInARow(t *testing.T) {
	for _, c := range []struct {
		hangs hangShare
		want  time.Duration
		room  int
	}{
		{hangShare{}, 800 * time.Millisecond, 1},
		{hangShare{hung: 25, delivered: 100}, 400 * time.Millisecond, 3},
		{hangShare{hung: 900, delivered: 100}, 200 * time.Millisecond, 4},
	} {
		m, err := New(Config{Window: window.Queue{}})
		if err != nil {
			t.Fatal(err)
		}
		m.Step(Event{Kind: LaneUp}, nil)
		now, seq := time.Duration(0), uint64(0)
		for range 4 {
			seq++
			for _, c := range m.Step(Event{Now: now, Kind: Offer, Seq: seq, Cost: 1}, nil) {
				if now == 0 && c.Kind == Start {
					now = 20 * time.Millisecond
					m.Step(Event{Now: now, Kind: Answer, ID: c.ID, Seq: seq, Outcome: Delivered}, nil)
				}
			}
			m.evidence.blame.hangs = c.hangs
			for seq > 1 && m.lanes.up[0].stats.timedOut < seq-1 {
				if now, _ = m.Wake(); now == 0 {
					t.Fatal("the machine waits for nothing")
				}
				m.Step(Event{Now: now, Kind: Tick}, nil)
			}
		}
		if got := m.attempts.rto(m.lanes.up[0]); got != c.want {
			t.Errorf("%+v: the timeout is %v after three timeouts in a row, want %v", c.hangs, got,
				c.want)
		}
		if w := &m.lanes.up[0].win; w.load.n+w.room(now) != c.room {
			t.Errorf("%+v: %d attempts may be in flight after three timeouts in a row, want %d",
				c.hangs, w.load.n+w.room(now), c.room)
		}
	}
}

// TestHangingTrial checks a trial that hangs. A trial is an attempt that tests whether the level of
// the worker has risen. The wait for the next trial must double if the level was found from
// attempts that hang, but not if it was found from refusals.
func TestHangingTrial(t *testing.T) {
	for rank, want := range map[int]time.Duration{0: levelWait, 5: 2 * levelWait} {
		m, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		m.Step(Event{Kind: LaneUp, Now: levelWait}, nil)
		l := m.lanes.up[0]
		a := &attempt{lane: l, level: 6}
		l.level = level{from: 6, wait: levelWait, trial: a}
		l.hanging.ranks = &hangRanks{level: rank, above: hangCount{hung: 100}}
		l.hanging.ranks.ranks[0].delivered = 100
		m.attempts.hung(a)
		if v := &l.level; v.wait != want || v.from != 6 || v.since != levelWait || v.trial != nil {
			t.Errorf("rank %d: the next trial waits %v at level %d, want %v at 6", rank, v.wait,
				v.from, want)
		}
	}
}

// TestOnTimeAttemptsAgainstList compares onTimeAttempts with a plain list of the running attempts.
func TestOnTimeAttemptsAgainstList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	var o onTimeAttempts
	var plain []*attempt
	var id uint64
	var e estimator
	e.sample(0.02/3, 1) // the limit is 20 ms
	now := time.Duration(0)
	for range 20_000 {
		now += time.Duration(rnd.IntN(3)) * time.Millisecond
		if len(plain) == 0 || rnd.IntN(2) == 0 && len(plain) < 40 {
			id++
			a := &attempt{id: id, sent: now, cost: float64(1 + rnd.IntN(3)), placed: true}
			o.add(a)
			plain = append(plain, a)
		} else {
			i := rnd.IntN(len(plain))
			a := plain[i]
			plain = append(plain[:i], plain[i+1:]...)
			o.recordDelivery(a, a.cost)
			o.drop(a)
			o.drop(a) // a second drop has no effect
		}
		o.markLost(now, &e)
		n, cost := 0, 0.0
		for _, a := range plain {
			if a.presumedLost {
				n++
				cost += a.cost
			} else if a.id < o.newest && now-a.sent > e.overdueSoon() {
				t.Fatalf("sent at %v, overtaken, and no suspect at %v", a.sent, now)
			}
		}
		if o.lost.n != n || math.Abs(o.lost.cost-cost) > 1e-9 {
			t.Fatalf("%d suspects of cost %v, want %d of %v", o.lost.n, o.lost.cost, n, cost)
		}
	}
}

// TestDistressEnds checks that two deliveries in a row end the distress of a worker (it refused
// more than chance explains), however many refusals came before.
func TestDistressEnds(t *testing.T) {
	for _, before := range []int{0, 20, 50} { // deliveries that alternate with refusals
		var v level
		a := &attempt{level: 1}
		for range before {
			v.delivered(0, a)
			v.refused(0, a, time.Millisecond)
		}
		for range 100 {
			v.refused(0, a, time.Millisecond)
		}
		if !v.isDistressed() {
			t.Errorf("%d deliveries before: no distress after 100 refusals in a row", before)
		}
		v.delivered(0, a)
		v.delivered(0, a)
		if v.isDistressed() {
			t.Errorf("%d deliveries before: distress after two deliveries in a row", before)
		}
	}
}
