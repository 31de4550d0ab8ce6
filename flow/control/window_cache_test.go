package control

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// TestCachedWindowState checks that, after any events, the cached values of a window equal those
// of the window.
func TestCachedWindowState(t *testing.T) {
	algorithms := []window.Algorithm{window.Queue{}, window.Credit{}, window.Linear{},
		window.AIMD{}, window.Rate{}}
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		m, err := New(Config{Seed: seed, Shared: true,
			Window: algorithms[seed%uint64(len(algorithms))]})
		if err != nil {
			t.Fatal(err)
		}
		var out []Command
		var ids []uint64
		now, seq, probes := time.Duration(0), uint64(0), 0
		step := func(e Event) {
			e.Now = now
			out = m.Step(e, out[:0])
			for _, c := range out {
				if c.Kind == Start {
					ids = append(ids, c.ID)
				}
			}
			for _, l := range m.lanes.all {
				was := l.win.cached
				if l.win.refresh(); l.win.cached != was {
					t.Fatalf("seed %d, at %v: after %+v lane %d says %+v, and %+v was kept", seed,
						now, e, l.num, l.win.cached, was)
				}
			}
			probes += len(m.lanes.windowProbes)
		}
		for i := range int32(4) {
			step(Event{Kind: LaneUp, Lane: i})
		}
		for range 6000 {
			for m.Room() {
				seq++
				step(Event{Kind: Offer, Seq: seq, Cost: 1, Bytes: 1})
			}
			now += time.Duration(rnd.IntN(8)) * time.Millisecond
			if rnd.IntN(500) == 0 {
				now += time.Second
			}
			if at, ok := m.Wake(); ok && at <= now {
				step(Event{Kind: Tick})
			}
			if len(ids) == 0 {
				continue
			}
			i := rnd.IntN(min(len(ids), 6)) // out of order, and sometimes much later
			e := Event{Kind: Answer, ID: ids[i], Outcome: Delivered,
				Report: Report{Credit: seq + 4}}
			if rnd.IntN(40) == 0 {
				e.Outcome = []Outcome{Retryable, TimedOut, Throttled, Misconfigured}[rnd.IntN(4)]
			}
			if seed%2 == 1 {
				e.Report.Epoch = 1 + uint32(seq/2000)
			}
			ids = append(ids[:i], ids[i+1:]...)
			step(e)
		}
		if seed == 2 && probes == 0 {
			t.Error("no window was narrowed for a measurement")
		}
	}
}
