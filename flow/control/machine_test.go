package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// newLanes returns a model with n lanes and a fixed window.
func newLanes(t *testing.T, cfg control.Config, size, n int) *model {
	t.Helper()
	if cfg.Window == nil {
		cfg.Window = window.Fixed{Size: size}
	}
	if cfg.Dispatch == nil {
		cfg.Dispatch = dispatch.RoundRobin{}
	}
	if cfg.Retry == nil {
		cfg.Retry = backoff.Exponential(100*ms, 2, sec) // no jitter: exact times
	}
	w := newModel(t, cfg, size)
	for i := range n {
		w.lane(int32(i), true, control.Limits{})
	}
	return w
}

// only returns the running attempt of item seq, and fails if there is not exactly one.
func (w *model) only(seq uint64) *modelTry {
	w.t.Helper()
	var found *modelTry
	for _, x := range w.running() {
		if x.item.seq == seq {
			if found != nil {
				w.t.Fatalf("item %d has two attempts", seq)
			}
			found = x
		}
	}
	if found == nil {
		w.t.Fatalf("item %d has no attempt: %+v", seq, w.m.Status())
	}
	return found
}

func (w *model) wantIdle() {
	w.t.Helper()
	if len(w.tries) > 0 {
		w.t.Fatalf("%d attempts run, want none: %+v", len(w.tries), w.m.Status())
	}
}

func (w *model) kinds() (k []control.CommandKind) {
	for _, c := range w.out {
		k = append(k, c.Kind)
	}
	return k
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []control.Config{
		{Replay: -1}, {Ahead: -1}, {Ahead: 1 << 30}, {Window: window.Linear{Initial: -3}},
		{Window: window.Fixed{Size: -1}}, {Retry: backoff.Table()},
		{Breaker: control.Breaker{Probe: backoff.Fixed(-1)}},
	} {
		if _, err := control.New(c); err == nil {
			t.Errorf("New(%+v) takes it", c)
		}
	}
	if _, err := control.New(control.Config{}); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
}

func TestTimeoutGoesToAnotherLane(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: sec}, 1, 2)
	w.offer(1, 10)
	first := w.only(1)
	w.pass(sec)
	tries := w.running()
	if len(tries) != 2 || tries[1].lane == first.lane || w.now != sec {
		t.Fatalf("after the timeout %d attempts run", len(tries))
	}
	// The late ack settles the item, and the other attempt is canceled.
	w.answer(first, control.Delivered, 0)
	if k := w.kinds(); len(k) != 2 || k[0] != control.Settle || k[1] != control.Cancel {
		t.Fatalf("the late ack gives %+v, want Settle and Cancel", w.out)
	}
	w.answer(tries[1], control.Delivered, 0)
	s := w.m.Status()
	if s.Duplicates != 1 || s.Settled != 1 || s.Lanes[first.lane].Late != 1 || s.Lanes[first.lane].TimedOut != 1 {
		t.Errorf("status %+v, want one duplicate, one late, one timed out", s)
	}
}

// TestOverdueAttemptIsNotCanceled checks that the overdue first attempt is not canceled when the
// second one delivers, since its late ack is a sample of the worker's time.
func TestOverdueAttemptIsNotCanceled(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: sec}, 1, 2)
	w.offer(1, 10)
	w.pass(sec)
	tries := w.running()
	w.answer(tries[1], control.Delivered, 0)
	if k := w.kinds(); len(k) != 1 || k[0] != control.Settle {
		t.Fatalf("got %+v, want Settle alone", w.out)
	}
	w.answer(tries[0], control.Retryable, 0)
	if s := w.m.Status(); s.Lanes[0].Failed != 0 || s.Settled != 1 {
		t.Errorf("the end of an overdue attempt counts as a second failure: %+v", s)
	}
}

func TestSingleLaneSendsNothingTwiceAtOnce(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: sec}, 1, 1)
	w.offer(1, 10)
	first := w.only(1)
	w.pass(5 * sec)
	if len(w.running()) != 1 {
		t.Fatal("sent again before the first Deliver has returned")
	}
	w.answer(first, control.TimedOut, 0)
	w.pass(sec)
	if x := w.only(1); x == first {
		t.Fatal("not sent again")
	}
}

func TestKeyedItemIsNotSentTwiceAtOnce(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: sec}, 4, 3)
	w.offer(1, 10, 7)
	w.offer(1, 10, 7)
	w.pass(5 * sec)
	first := w.only(1)
	w.answer(first, control.Retryable, 0)
	if x := w.only(1); x.lane == first.lane {
		t.Errorf("sent again to lane %d, which failed it", x.lane)
	}
	w.drain()
}

func TestNackWaitsOnlyForALaneThatFailedIt(t *testing.T) {
	w := newLanes(t, control.Config{}, 1, 2)
	w.offer(1, 10)
	first := w.only(1)
	w.answer(first, control.Retryable, 0)
	second := w.only(1) // at once
	if second.lane == first.lane {
		t.Fatal("went back to the lane that failed it")
	}
	w.answer(second, control.Retryable, 0)
	w.wantIdle()
	if at, ok := w.m.Wake(); !ok || at != w.now+100*ms {
		t.Fatalf("Wake() = %v, %v; want the retry's 100 ms", at, ok)
	}
	w.offer(1, 10) // the waiting item takes no place in the window
	if len(w.running()) != 1 {
		t.Error("a waiting item holds a place")
	}
	w.pass(100 * ms)
	w.answer(w.only(1), control.Retryable, 0)
	w.pass(199 * ms)
	if len(w.running()) != 1 {
		t.Error("the second wait is shorter than 200 ms")
	}
	w.pass(ms)
	w.only(1)
	w.drain()
}

func TestThrottle(t *testing.T) {
	w := newLanes(t, control.Config{}, 2, 1)
	w.offer(1, 10)
	w.answer(w.only(1), control.Throttled, 2*sec)
	s := w.m.Status().Lanes[0]
	if s.State != window.Throttled || s.Gate != "throttle" || s.Until < 2*sec || s.Until > 2200*ms {
		t.Fatalf("lane %+v, want THROTTLED for 2 s and up to a tenth more", s)
	}
	if w.m.Room() {
		t.Error("there is room although the only gate is closed")
	}
	w.pass(s.Until)
	w.answer(w.only(1), control.Throttled, 24*time.Hour)
	if until := w.m.Status().Lanes[0].Until; until > w.now+5*time.Minute {
		t.Errorf("throttled for %v, want at most 5 minutes", until-w.now)
	}
	if s := w.m.Status().Lanes[0]; s.Failed != 0 || s.ThrottledN != 2 || s.RoundTrip != 0 {
		t.Errorf("a throttle counts as failure or sample: %+v", s)
	}
	w.pass(6 * time.Minute)
	last := time.Duration(0)
	for range 8 { // without Retry-After the waits grow
		w.answer(w.only(1), control.Throttled, 0)
		last = w.m.Status().Lanes[0].Until - w.now
		w.pass(last)
	}
	if last < probeEarlyWait/2 {
		t.Errorf("the eighth wait without a hint is %v", last)
	}
	w.drain()
}

// probeEarlyWait is the longest wait of the machine's own backoff in the first minute.
const probeEarlyWait = sec

func TestThrottledItemGoesElsewhere(t *testing.T) {
	w := newLanes(t, control.Config{}, 1, 2)
	w.offer(1, 10)
	first := w.only(1)
	w.answer(first, control.Throttled, sec)
	if x := w.only(1); x.lane == first.lane {
		t.Error("sent to a closed gate")
	}
	w.drain()
}

func TestMisconfiguredIsTheLanesFault(t *testing.T) {
	w := newLanes(t, control.Config{}, 1, 2)
	w.offer(1, 10)
	first := w.only(1)
	w.answer(first, control.Misconfigured, 0)
	if s := w.m.Status().Lanes[first.lane]; s.State != window.Open {
		t.Errorf("lane is %v, want OPEN at once", s.State)
	}
	w.answer(w.only(1), control.Delivered, 0)
	alone := newLanes(t, control.Config{Breaker: control.Breaker{Failures: -1}}, 1, 1)
	alone.offer(1, 10)
	for range 200 {
		alone.answer(alone.only(1), control.Misconfigured, 0)
		alone.wantIdle()
		at, ok := alone.m.Wake()
		if !ok {
			t.Fatal("it is never tried again")
		}
		alone.pass(at - alone.now)
	}
	alone.drain() // checks that nothing was cut or dead-lettered
}

func TestRejectedIsCutThenDeadLettered(t *testing.T) {
	w := newLanes(t, control.Config{}, 4, 2)
	w.offer(4, 40)
	w.answer(w.only(1), control.Rejected, 0)
	if k := w.kinds(); len(k) != 1 || k[0] != control.Bisect {
		t.Fatalf("got %+v, want Bisect", w.out)
	}
	w.reply(0, 2) // pieces 2 and 3
	w.answer(w.only(2), control.Delivered, 0)
	w.answer(w.only(3), control.Rejected, 0)
	w.reply(0, 0) // cannot be cut
	if k := w.kinds(); len(k) != 1 || k[0] != control.DeadLetter {
		t.Fatalf("got %+v, want DeadLetter", w.out)
	}
	w.reply(0, 0)
	if c := w.out[0]; c.Kind != control.Settle || c.Lane != -1 || c.Number != 1 {
		t.Fatalf("got %+v, want Settle by no lane after one attempt", w.out)
	}
	s := w.m.Status()
	if !w.m.Idle() || s.Lanes[0].Failed+s.Lanes[1].Failed != 0 || s.ReplayBytes != 40 {
		t.Errorf("status %+v", s)
	}
}

// TestRefusedWhileAnotherAttemptRuns checks that a refused item is not cut while another attempt
// runs, and that a delivery by that attempt settles it.
func TestRefusedWhileAnotherAttemptRuns(t *testing.T) {
	for _, end := range []control.Outcome{control.Delivered, control.Retryable} {
		w := newLanes(t, control.Config{Timeout: sec}, 1, 2)
		w.offer(1, 10)
		w.pass(sec)
		tries := w.running()
		w.answer(tries[0], control.Rejected, 0)
		if len(w.out) != 0 {
			t.Fatalf("got %+v while another attempt runs", w.out)
		}
		w.answer(tries[1], end, 0)
		want := control.Settle
		if end == control.Retryable {
			want = control.Bisect
		}
		if k := w.kinds(); len(k) != 1 || k[0] != want {
			t.Errorf("then %v gives %+v", end, w.out)
		}
		w.drain()
	}
}

func TestSplitKeepsItsPlace(t *testing.T) {
	w := newLanes(t, control.Config{}, 4, 1)
	w.offer(3, 30, 1)
	w.offer(1, 10, 1)
	w.answer(w.only(1), control.Split, 0, control.Delivered, control.Retryable, control.Rejected)
	w.pass(sec)
	w.answer(w.only(4), control.Delivered, 0) // the rest, before item 2
	w.wantIdle()                              // the refused piece is not durable yet
	w.reply(0, 0)
	w.answer(w.only(2), control.Delivered, 0)
	if s := w.m.Status(); s.Settled != 4 || !w.m.Idle() {
		t.Errorf("status %+v", s)
	}
}

func TestSplitWithoutPiecesIsRetried(t *testing.T) {
	w := newLanes(t, control.Config{}, 4, 2)
	w.offer(3, 30)
	w.answer(w.only(1), control.Split, 0)
	w.answer(w.only(1), control.Delivered, 0)
	w.drain()
}

func TestReplayBound(t *testing.T) {
	w := newLanes(t, control.Config{Replay: 100}, 8, 2)
	for w.offer(1, 40) && len(w.items) < 10 {
	}
	if n := len(w.running()); n != 2 {
		t.Fatalf("%d items of 40 bytes are in flight at a bound of 100", n)
	}
	for _, x := range w.running() {
		w.answer(x, control.Delivered, 0)
	}
	if s := w.m.Status(); w.m.Room() || !s.ReplayBinding || s.Lanes[0].Gate != "replay" {
		t.Fatalf("80 bytes are not saved and it does not bind: %+v", s)
	}
	w.unsaved -= 80
	w.step(control.Event{Kind: control.Saved, Bytes: 80})
	if len(w.running()) != 1 || !w.m.Room() {
		t.Errorf("saving opens nothing: %+v", w.m.Status())
	}
	w.drain()
	w.offer(1, 1000) // one item is always allowed
	w.only(uint64(len(w.items)))
	w.drain()
}

func TestRoomLooksAhead(t *testing.T) {
	w := newLanes(t, control.Config{}, 3, 2)
	n := 0
	for w.offer(1, 10) {
		n++
	}
	if n != 6 {
		t.Errorf("room for %d items at two windows of 3", n)
	}
	w = newLanes(t, control.Config{Dispatch: dispatch.Hash{}, Ahead: 5}, 1, 3)
	for w.offer(1, 10) {
	}
	if s := w.m.Status(); s.InFlight != 3 || s.Waiting != 5 {
		t.Errorf("hash dispatch: %d in flight, %d waiting; want each lane busy and 5 ahead", s.InFlight, s.Waiting)
	}
	w = newLanes(t, control.Config{}, 1, 0)
	if w.m.Room() {
		t.Error("there is room without a lane")
	}
}

func TestLaneDown(t *testing.T) {
	w := newLanes(t, control.Config{}, 1, 2)
	w.offer(1, 10)
	w.offer(1, 10)
	a, b := w.only(1), w.only(2)
	w.lane(a.lane, false, control.Limits{})
	w.answer(a, control.Retryable, 0) // the attempt was still running
	if n := len(w.m.Status().Lanes); n != 1 {
		t.Errorf("%d lanes, want the one that is up", n)
	}
	w.answer(b, control.Delivered, 0)
	if x := w.only(1); x.lane != b.lane {
		t.Errorf("started at lane %d", x.lane)
	}
	w.drain()
}

func TestFixedAndNoTimeout(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1}, 1, 2)
	w.offer(1, 10)
	w.pass(time.Hour)
	if x := w.only(1); x.expect != 0 {
		t.Errorf("overdue at %v, want never", x.expect)
	}
	w = newLanes(t, control.Config{Timeout: 3 * sec, Breaker: control.Breaker{Failures: -1}}, 4, 1)
	for range 4 {
		w.offer(1, 10)
		if x := w.running()[len(w.tries)-1]; x.expect != w.now+3*sec {
			t.Errorf("overdue after %v, want 3 s, however many timed out before", x.expect-w.now)
		}
		w.pass(3 * sec)
	}
	w.drain()
}
