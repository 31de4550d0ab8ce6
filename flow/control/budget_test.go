package control_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
)

// owe records in the model, after attempt x has ended, whether the next attempt of its item must
// take a token of the budget: it must after a failure or a timeout. If x took a token and ended
// Throttled or Misconfigured, x returns the token, and the next attempt must take one.
func (w *model) owe(x *modelTry, out control.Outcome) {
	switch out {
	case control.Retryable, control.TimedOut:
		x.item.owes = true
	case control.Throttled, control.Misconfigured:
		if x.paid && !x.item.settled {
			x.paid, x.item.owes = false, true
			w.unreturned--
		}
	}
}

// spend notes that attempt x takes a token of the budget, if its item must take one.
func (w *model) spend(c control.Command, it *modelItem, x *modelTry) {
	if x.paid = it.owes && c.Reason == control.InOrder; x.paid {
		w.unreturned++
	}
	it.owes = false
}

// checkBudget checks the number of failed attempts against the budget.
func (w *model) checkBudget() {
	w.t.Helper()
	b := w.cfg.Budget
	if b == (control.Budget{}) {
		b = control.Budget{Share: 0.1, PerSecond: 10, Burst: 10}
	}
	most := b.Burst + b.Share*float64(w.done) + b.PerSecond*w.now.Seconds()
	if b.Share > 0 && w.strict && float64(w.unreturned) > most+1e-6 {
		w.fail("%d attempts keep a token, want at most %.1f after %d deliveries and %v",
			w.unreturned, most, w.done, w.now)
	}
}

func TestBudgetRefuses(t *testing.T) {
	for _, b := range []control.Budget{
		{Share: 1.5}, {Share: math.NaN()}, {PerSecond: -1}, {PerSecond: math.Inf(1)}, {Burst: 0.5},
		{Burst: -1}, {Burst: math.NaN()},
	} {
		if _, err := control.New(control.Config{Budget: b}); err == nil {
			t.Errorf("New takes the budget %+v", b)
		}
	}
}

// spent returns a model of four lanes. It has failed b.Burst+1 items, and their retries have taken
// all b.Burst tokens. So one item waits for a token.
func spent(t *testing.T, b control.Budget) *model {
	w := newLanes(t, control.Config{
		Timeout: -1, Budget: b, Retry: backoff.Fixed(0), Breaker: control.Breaker{Failures: -1},
	}, 1000, 4)
	for range int(b.Burst) + 1 {
		w.offer(1, 10)
	}
	for seq := range w.seq {
		w.answer(w.only(seq+1), control.Retryable, 0)
	}
	return w
}

// TestBudgetHolds checks that with an empty bucket a failed item waits for the next token even if
// lanes are free, while new items are sent. The status reports the shortage.
func TestBudgetHolds(t *testing.T) {
	w := spent(t, control.Budget{Burst: 2, PerSecond: 4})
	if n := len(w.running()); n != 2 {
		t.Fatalf("%d of 3 failed items are sent again at once, want 2", n)
	}
	s := w.m.Status()
	if s.Budget.Waiting != 1 || s.Budget.Waited != 1 || s.Budget.Tokens > 0.1 || s.Lanes[0].Gate != "budget" {
		t.Errorf("status %+v with gate %q; want one item waiting, and budget as the gate", s.Budget, s.Lanes[0].Gate)
	}
	w.offer(1, 10)
	w.only(4)
	w.pass(240 * ms)
	if n := len(w.running()); n != 3 {
		t.Fatalf("%d attempts run before the next token, want 3", n)
	}
	w.pass(20 * ms)
	w.only(3)
	if s := w.m.Status(); s.Budget.Waiting != 0 || s.Lanes[0].Gate != "none" {
		t.Errorf("status %+v with gate %q after the token came", s.Budget, s.Lanes[0].Gate)
	}
	w.drain()
}

// TestBudgetGivesBack checks that a successful retry returns its token, and that a delivery adds
// Share tokens.
func TestBudgetGivesBack(t *testing.T) {
	w := spent(t, control.Budget{Burst: 2, PerSecond: 0.001, Share: 0.25})
	w.answer(w.only(1), control.Delivered, 0)
	w.only(3) // started: there were 1.25 tokens
	w.answer(w.only(2), control.Retryable, 0)
	if x := len(w.running()); x != 1 {
		t.Fatalf("%d attempts run, want 1: a quarter of a token does not pay for item 2", x)
	}
	for range 3 {
		w.offer(1, 10)
		w.answer(w.only(w.seq), control.Delivered, 0)
	}
	w.only(2) // four deliveries pay for one retry
	w.drain()
}

// TestBudgetTakesNothingForAThrottle checks that a retry after a receiver's Retry-After takes no
// token of the retry budget.
func TestBudgetTakesNothingForAThrottle(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1,
		Budget: control.Budget{Burst: 1, PerSecond: 0.001, Share: 0.001}}, 10, 2)
	w.offer(1, 10)
	for range 5 {
		w.answer(w.only(1), control.Throttled, 100*ms)
		w.pass(sec)
	}
	if s := w.m.Status(); s.Budget.Tokens < 1 || s.Budget.Waited != 0 {
		t.Errorf("throttles have cost tokens: %+v", s.Budget)
	}
	w.drain()
}

// TestBudgetEndsNoOutage checks the recovery from an outage that began with far more items in
// flight than the budget has tokens. All items are delivered within seconds afterwards, because
// successful retries return their tokens.
func TestBudgetEndsNoOutage(t *testing.T) {
	const items = 2000
	rnd := rand.New(rand.NewPCG(1, 1))
	w := newLanes(t, control.Config{Timeout: 200 * ms, Retry: backoff.Fixed(50 * ms)}, 200, 10)
	for w.seq < items && w.offer(1, 10) {
	}
	down := 5 * sec
	for len(w.order) > 0 {
		for _, x := range w.running() {
			switch {
			case w.now < down && x.overdue:
				w.answer(x, control.Retryable, 0)
			case w.now >= down:
				w.answer(x, control.Delivered, 0)
			}
		}
		w.pass(time.Duration(1+rnd.IntN(20)) * ms)
		if w.now > down+10*sec {
			t.Fatalf("10 s after the outage %d of %d items are still to be delivered: %+v",
				len(w.order), items, w.m.Status().Budget)
		}
	}
	t.Logf("all of %d items %v after the outage; %d attempts", items, w.now-down, w.starts)
	if w.starts > 2*items+200 {
		t.Errorf("%d attempts for %d items in an outage of %v", w.starts, items, down)
	}
	w.drain()
}
