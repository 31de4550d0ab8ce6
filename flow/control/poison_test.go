package control_test

import (
	"math/rand/v2"
	"testing"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
)

// die ends attempt x with a failure that reports the death of the worker.
func (w *model) die(x *modelTry) {
	w.t.Helper()
	w.died = true
	w.answer(x, control.Retryable, 0)
}

// onlyCommand returns the only command of the last step, which must be of this kind.
func (w *model) onlyCommand(kind control.CommandKind) control.Command {
	w.t.Helper()
	if len(w.out) != 1 || w.out[0].Kind != kind {
		w.t.Fatalf("the machine said %+v, want one command of kind %d", w.out, kind)
	}
	return w.out[0]
}

func TestPoisonRefuses(t *testing.T) {
	for _, p := range []control.Poison{{Deaths: 1000}, {Failures: 1000}} {
		if _, err := control.New(control.Config{Poison: p}); err == nil {
			t.Errorf("New takes %+v", p)
		}
	}
}

// TestDeathsCutAndDeadLetter checks that an item is cut when it has killed three workers, and a
// piece of it at the first death. An indivisible piece is dead-lettered when it has killed three
// workers by itself.
func TestDeathsCutAndDeadLetter(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(10 * ms),
		Breaker: control.Breaker{Failures: -1}}, 10, 5)
	w.offer(4, 40)
	for range 2 {
		w.die(w.only(1))
	}
	if s := w.m.Status(); s.Poisoned != 0 {
		t.Fatalf("%d poisoned after two deaths", s.Poisoned)
	}
	w.die(w.only(1))
	if c := w.onlyCommand(control.Bisect); c.Reason != control.Deadly || c.Count != 3 ||
		c.Number != 3 {
		t.Fatalf("after three deaths: %+v", c)
	}
	w.reply(0, 2) // into 2 and 3
	w.answer(w.only(2), control.Delivered, 0)
	w.die(w.only(3))
	if c := w.onlyCommand(control.Bisect); c.Reason != control.Deadly || c.Count != 1 {
		t.Fatalf("after the death of a piece: %+v", c)
	}
	w.reply(0, 0) // the piece cannot be cut, and has not killed three workers by itself
	for range 2 {
		w.die(w.only(3))
	}
	if c := w.onlyCommand(control.Bisect); c.Count != 3 {
		t.Fatalf("after three deaths of what cannot be cut: %+v", c)
	}
	w.reply(0, 0)
	c := control.Command{}
	if len(w.out) > 0 {
		c = w.out[0]
	}
	if c.Kind != control.DeadLetter || c.Reason != control.Deadly || c.Count != 3 {
		t.Fatalf("it is not dead-lettered: %+v", w.out)
	}
	w.drain()
	if s := w.m.Status(); s.Poisoned != 2 {
		t.Errorf("%d items were refused as poison, want the whole and what was left: 2", s.Poisoned)
	}
}

// feud returns a model of four lanes at which item 1 has failed repeatedly. If othersDeliver is
// true, the other items were delivered. Otherwise they have failed as well.
func feud(t *testing.T, cfg control.Config, othersDeliver bool, rounds int) *model {
	cfg.Timeout, cfg.Retry = -1, backoff.Exponential(100*ms, 2, sec)
	w := newLanes(t, cfg, 10, 4)
	w.offer(1, 10)
	for range rounds {
		for len(w.order) < 9 && w.offer(1, 10) {
		}
		for _, x := range w.running() {
			switch {
			case x.item.seq == 1, !othersDeliver:
				w.answer(x, control.Retryable, 0)
			default:
				w.answer(x, control.Delivered, 0)
			}
			if len(w.asked) > 0 {
				return w
			}
		}
		w.pass(50 * ms)
	}
	return w
}

// TestSuspect checks that an item that every worker fails, while they deliver others, becomes a
// suspect: it opens no breaker, waits longer and longer, and is never given up.
func TestSuspect(t *testing.T) {
	w := feud(t, control.Config{}, true, 200)
	s := w.m.Status()
	if s.Suspects != 1 || s.Poisoned != 0 {
		t.Fatalf("%d suspects, %d poisoned; want 1 and 0", s.Suspects, s.Poisoned)
	}
	for _, l := range s.Lanes {
		if l.Fault != 0 || l.Window != 10 {
			t.Errorf("lane %d pays for it: %+v", l.Lane, l)
		}
	}
	if n := w.items[1].starts; n < 8 || n > 4+4+10 { // in 10 s, with waits of up to 1 s
		t.Errorf("it was tried %d times in 10 s", n)
	}
	w.drain()
	if s := w.m.Status(); s.Suspects != 0 {
		t.Errorf("%d suspects when all has settled", s.Suspects)
	}
}

// TestOutageMakesNoSuspect checks that while no worker delivers, no item becomes a suspect, even if
// all workers fail it.
func TestOutageMakesNoSuspect(t *testing.T) {
	w := feud(t, control.Config{Poison: control.Poison{Refuse: true}}, false, 400)
	if s := w.m.Status(); s.Suspects != 0 || s.Poisoned != 0 || len(w.asked) > 0 {
		t.Errorf("an outage makes suspects: %+v", s)
	}
	w.drain()
}

// TestSuspectIsRefused checks that with Poison.Refuse a suspect is cut like a rejected item.
func TestSuspectIsRefused(t *testing.T) {
	w := feud(t, control.Config{Poison: control.Poison{Refuse: true}}, true, 200)
	if c := w.onlyCommand(control.Bisect); c.Seq != 1 || c.Reason != control.Failing ||
		c.Count < 2 {
		t.Fatalf("said %+v, want item 1 to be cut", c)
	}
	w.drain()
}

// TestFewLanes checks that an item that fails at the only worker becomes a suspect after two or
// three failures, and not sooner. The worker delivers other items in between.
func TestFewLanes(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(10 * ms),
		Breaker: control.Breaker{Failures: -1}}, 10, 1)
	w.offer(1, 10)
	for i := range 3 {
		if s := w.m.Status(); s.Suspects != 0 && i < 2 {
			t.Fatalf("a suspect after %d failures", i)
		}
		w.answer(w.only(1), control.Retryable, 0)
		for range 4 {
			w.offer(1, 10)
			w.answer(w.only(w.seq), control.Delivered, 0)
		}
		w.pass(20 * ms)
	}
	if s := w.m.Status(); s.Suspects != 1 {
		t.Errorf("%d suspects after three failures at the only worker, which delivers others", s.Suspects)
	}
	w.drain()
}

// TestOverloadMakesFewSuspects checks that hardly any item becomes a suspect while every worker
// fails a third of its attempts by chance.
func TestOverloadMakesFewSuspects(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(20 * ms),
		Breaker: control.Breaker{Failures: -1}}, 10, 4)
	accused := map[uint64]bool{}
	for range 1000 {
		for len(w.order) < 9 && w.offer(1, 10) {
		}
		for _, x := range w.running() {
			if rnd.IntN(3) == 0 {
				w.answer(x, control.Retryable, 0)
			} else {
				w.answer(x, control.Delivered, 0)
			}
		}
		for _, x := range w.running() {
			if x.apart {
				accused[x.item.seq] = true
			}
		}
		w.pass(10 * ms)
	}
	if s := w.m.Status(); uint64(len(accused))*100 > s.Settled {
		t.Errorf("%d of %d good items were set apart, want 1 %% at most", len(accused), s.Settled)
	}
	w.drain()
}

// TestSuspectAloneIsProbed checks that probes use suspects if no other items are left and the
// workers are paused.
func TestSuspectAloneIsProbed(t *testing.T) {
	w := feud(t, control.Config{Breaker: control.Breaker{Failures: 1, Probe: backoff.Fixed(100 * ms)}}, true, 100)
	for range 400 {
		for _, x := range w.running() {
			w.answer(x, control.Retryable, 0)
		}
		w.pass(50 * ms)
	}
	if w.items[1].settled {
		t.Fatal("nobody has taken it")
	}
	w.drain()
}
