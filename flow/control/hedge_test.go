package control_test

import (
	"math"
	"testing"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
)

// checkHedge checks the start of a hedge against the documented rules.
func (w *model) checkHedge(c control.Command, it *modelItem, x *modelTry) {
	w.t.Helper()
	if c.Reason != control.HedgeAttempt {
		return
	}
	w.hedged++
	switch {
	case w.order[0] != it:
		w.fail("item %d has a hedge, and item %d holds the watermark", it.seq, w.order[0].seq)
	case it.running != 2 || x.ordered || len(it.keys) > 0 || it.deaths > 0:
		w.fail("item %d has a hedge with %d attempts in flight", it.seq, it.running)
	case float64(w.hedged) > w.cfg.Hedge.Share*float64(w.starts-w.hedged):
		w.fail("%d hedges of %d attempts", w.hedged, w.starts)
	}
	for _, o := range w.tries {
		if o.item == it && o.ordered {
			w.fail("an attempt at an Ordered lane has a hedge")
		}
	}
}

func TestHedgeRefuses(t *testing.T) {
	for _, share := range []float64{-0.1, 1.1, math.NaN()} {
		if _, err := control.New(control.Config{Hedge: control.Hedge{Share: share}}); err == nil {
			t.Errorf("New takes a share of %v hedges", share)
		}
	}
	if _, err := control.New(control.Config{Hedge: control.Hedge{Least: -1}}); err == nil {
		t.Error("New takes hedges after -1 round trips")
	}
}

// warm returns a model with idle lanes. All lanes have delivered often enough, in 20 to 40 ms, for
// their next attempts to be hedged.
func warm(t *testing.T, cfg control.Config, lanes int) *model {
	cfg.Retry = backoff.Fixed(10 * ms)
	w := newLanes(t, cfg, 4, lanes)
	w.warm(60 * lanes)
	return w
}

// warm delivers n items, one after the other, so that the machine knows the round trips of the
// lanes.
func (w *model) warm(n int) {
	w.t.Helper()
	for range n {
		w.offer(1, 10)
		w.pass(20 * ms)
		for _, x := range w.running() {
			w.answer(x, control.Delivered, 0)
		}
		if n := w.unsaved; n > 0 {
			w.unsaved = 0
			w.step(control.Event{Kind: control.Saved, Bytes: n})
		}
	}
}

// TestHedge checks that the oldest unsettled item, which holds the watermark back, is hedged at
// another lane when its attempt takes longer than nearly all others. The first delivery settles the
// item, once. If the hedge delivers, the first attempt continues; if the first attempt delivers,
// the hedge is canceled.
func TestHedge(t *testing.T) {
	for _, winner := range []string{"hedge", "first", "neither"} {
		t.Run(winner, func(t *testing.T) {
			w := warm(t, control.Config{Hedge: control.Hedge{Share: 0.02}}, 3)
			w.offer(1, 10)
			seq := w.seq
			first := w.only(seq)
			w.offer(1, 10)
			second := w.only(w.seq) // as late as the first, but not of the oldest item
			began := w.now
			w.pass(190 * ms) // less than the minimum timeout of 200 ms
			tries := w.running()
			if len(tries) != 3 {
				t.Fatalf("%d attempts run after %v, want the two and a hedge: %+v", len(tries),
					w.now-began, w.m.Status())
			}
			hedge := tries[2]
			if hedge.item.seq != seq || hedge.lane == first.lane || second.item.starts != 1 {
				t.Fatalf("the hedge is of item %d at lane %d", hedge.item.seq, hedge.lane)
			}
			switch winner {
			case "hedge":
				w.answer(hedge, control.Delivered, 0)
				if k := w.kinds(); len(k) < 1 || k[0] != control.Settle || len(k) > 1 && k[1] == control.Cancel {
					t.Errorf("the hedge's delivery gives %+v, want Settle and no Cancel", w.out)
				}
				w.answer(first, control.Delivered, 0)
			case "first":
				w.answer(first, control.Delivered, 0)
				if k := w.kinds(); len(k) < 2 || k[0] != control.Settle || k[1] != control.Cancel {
					t.Errorf("the first's delivery gives %+v, want Settle and Cancel", w.out)
				}
				w.answer(hedge, control.Delivered, 0)
			case "neither":
				w.answer(hedge, control.Retryable, 0)
				w.answer(first, control.Retryable, 0)
				if third := w.only(seq); third.lane == first.lane || third.lane == hedge.lane {
					t.Error("it goes to a lane that has failed it, and there is another")
				}
			}
			s := w.m.Status()
			want := [2]uint64{2, 1} // the other item then holds the watermark and is hedged, too
			if winner == "neither" {
				want = [2]uint64{1, 0}
			}
			if got := [2]uint64{s.Hedged, s.Duplicates}; got != want {
				t.Errorf("hedges and duplicates are %v, want %v", got, want)
			}
			w.drain()
		})
	}
}

// TestNoHedge checks the attempts that must not be hedged.
func TestNoHedge(t *testing.T) {
	on := control.Hedge{Share: 0.02}
	for _, c := range []struct {
		name string
		cfg  control.Config
		edit func(w *model)
	}{
		{"not asked for", control.Config{}, func(w *model) { w.offer(1, 10) }},
		{"keys", control.Config{Hedge: on}, func(w *model) { w.offer(1, 10, 7) }},
		{"hash binds it to its lane", control.Config{Hedge: on, Dispatch: dispatch.Hash{}}, func(w *model) {
			w.offer(1, 10)
		}},
		{"nothing else is open", control.Config{Hedge: on}, func(w *model) {
			w.offer(1, 10)
			for i := range int32(3) {
				if w.only(w.seq).lane != i {
					w.lane(i, false, control.Limits{})
				}
			}
		}},
		{"only Ordered lanes are open", control.Config{Hedge: on}, func(w *model) {
			w.offer(1, 10)
			for i := range int32(3) {
				if w.only(w.seq).lane != i {
					w.lane(i, true, control.Limits{Ordered: true})
				}
			}
		}},
		{"it has killed a worker", control.Config{Hedge: on}, func(w *model) {
			w.offer(1, 10)
			w.die(w.only(w.seq))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := warm(t, c.cfg, 3)
			c.edit(w)
			began := w.now
			w.pass(190 * ms)
			if s := w.m.Status(); s.Hedged != 0 || len(w.running()) != 1 {
				t.Errorf("%v later there are %d hedges and %d attempts", w.now-began, s.Hedged, len(w.running()))
			}
			w.drain()
		})
	}
}

// TestNoHedgeInAnOutage checks that while no lane delivers and all are paused (the global backoff),
// one probe is sent, and no hedge.
func TestNoHedgeInAnOutage(t *testing.T) {
	w := warm(t, control.Config{Hedge: control.Hedge{Share: 1}, Timeout: sec}, 4)
	for w.m.Room() && w.offer(1, 10) {
	}
	for range 60 {
		for _, x := range w.running() {
			w.answer(x, control.Retryable, 0)
		}
		w.pass(100 * ms)
	}
	before := w.m.Status()
	w.pass(20 * sec)
	if s := w.m.Status(); s.Hedged != before.Hedged {
		t.Errorf("%d hedges while nothing is delivered", s.Hedged-before.Hedged)
	}
	w.drain()
}
