package control

import (
	"math"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

func machine(t *testing.T, lanes int) *Machine {
	t.Helper()
	m, err := New(Config{Window: window.Queue{}, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range lanes {
		m.Step(Event{Kind: LaneUp, Lane: int32(i)}, nil)
	}
	return m
}

// TestExperimentEndsByTheClock checks that lanes paused by an experiment resume when its time is
// over, even if no worker answers.
func TestExperimentEndsByTheClock(t *testing.T) {
	m := machine(t, 4)
	m.group.began = m.now
	m.group.pauseHalf(evenPhase)
	m.findGate()
	if m.lanes.free != 2 || !m.lanes.up[0].groupState.paused || m.lanes.up[1].groupState.paused {
		t.Fatalf("%d of 4 lanes are free in an experiment, want every second", m.lanes.free)
	}
	at, ok := m.Wake()
	if !ok || at > maxPhase {
		t.Fatalf("Wake = %v, %v; want the end of the phase", at, ok)
	}
	m.Step(Event{Now: at, Kind: Tick}, nil)
	if m.lanes.free != 4 || m.group.phase != noPhase || m.group.win != nil {
		t.Errorf("after the phase's end %d of 4 lanes are free, phase %d", m.lanes.free, m.group.phase)
	}
}

// TestElasticity checks the elasticity, which shows whether lanes share a bottleneck (see group).
// It must be 1 if round trips fall in proportion to the total in flight, and 0 if they are
// constant.
func TestElasticity(t *testing.T) {
	for _, c := range []struct{ before, after, want float64 }{{0.8, 0.4, 1}, {0.8, 0.8, 0},
		{0.8, 0.4 * math.Sqrt2, 0.5}} {
		m := machine(t, 2)
		for range 10 {
			m.lanes.up[1].groupState.whole.add(c.before, 8, 16)
			m.lanes.up[1].groupState.half.add(c.after, 8, 8)
		}
		m.group.compare()
		if e, ok := m.group.change.elasticity(); !ok || math.Abs(e-c.want) > 1e-9 {
			t.Errorf("from %g to %g: elasticity %g, %v; want %g", c.before, c.after, e, ok, c.want)
		}
	}
	still := change{rtt: 1, inFlight: 0.01, weight: 10}
	if _, ok := still.elasticity(); ok {
		t.Error("an elasticity is told though what was in flight did not change")
	}
}

// TestGroupBoundsTheSum checks that the shared window of a group bounds the total in flight of all
// lanes, and always allows one item.
func TestGroupBoundsTheSum(t *testing.T) {
	m := machine(t, 4)
	m.group.regroup()
	started := 0
	for seq := uint64(1); m.Room() && seq < 100; seq++ {
		for _, c := range m.Step(Event{Kind: Offer, Seq: seq, Cost: 1}, nil) {
			if c.Kind == Start {
				started++
			}
		}
	}
	if started != 4 { // one for each lane, since each window begins at one
		t.Errorf("%d are in flight at the beginning of a group of 4 lanes, want 4", started)
	}
	m.group.limit = 2
	if !m.group.isFull() || m.group.room() != 0 || m.Room() {
		t.Errorf("4 in flight where 2 may be: full %v, room %d, Room %v", m.group.isFull(), m.group.room(), m.Room())
	}
	m.group.regroup()
	if m.group.isFull() || m.group.win != nil {
		t.Error("a group that was given up bounds something")
	}
}

// TestProbesInTurn checks that lanes that failed together are probed in turn, at intervals that
// double up to 6 s, and that an independent failure restarts the schedule.
func TestProbesInTurn(t *testing.T) {
	m := machine(t, 12)
	m.lanes.openBreakers = 6
	m.breakers.schedule.until = massFailureFor
	last := time.Duration(0)
	for i := range 8 {
		at := m.breakers.nextProbeAt(Retryable, i < 6)
		want := min(probeBase<<i, maxProbeWaitSeveral)
		if d := at - last; d > want || d < want*3/4 {
			t.Errorf("turn %d is %v after the one before, want %v to %v", i, d, want*3/4, want)
		}
		last = at
	}
	m.now = 10 * time.Second
	if at := m.breakers.nextProbeAt(Retryable, true); at-m.now > probeBase {
		t.Errorf("a lane that fails later is tried after %v, want %v at most", at-m.now, probeBase)
	}
	m.now = 2 * time.Minute
	for range 20 {
		if at := m.breakers.nextProbeAt(Retryable, false); at-m.now > maxProbeWait {
			t.Fatalf("a lane is tried after %v, want %v at most", at-m.now, maxProbeWait)
		}
	}
}

// TestMassFailure checks that the first failure of a lane opens its breaker if the breaker of
// another lane has just opened, because both lanes probably fail for the same reason. If failures
// have recently come by chance, the first one must not open the breaker.
func TestMassFailure(t *testing.T) {
	for _, chance := range []float64{0, 1} {
		m := machine(t, 12)
		m.breakers.schedule.until, m.breakers.schedule.chance = massFailureFor, chance
		l := m.lanes.up[3]
		m.breakers.recordFailure(l, &attempt{lane: l}, Retryable)
		if open := l.br.state == breakerOpen; open != (chance == 0) {
			t.Errorf("with %g chance errors lately the first error of a lane opens its breaker: %v",
				chance, open)
		}
	}
}
