package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// fill offers items while there is room.
func (w *model) fill() {
	w.t.Helper()
	for range 1000 {
		if !w.offer(1, 10) {
			return
		}
	}
	w.t.Fatal("room for a thousand items")
}

func (w *model) at(lane int32) (found []*modelTry) {
	for _, x := range w.running() {
		if x.lane == lane {
			found = append(found, x)
		}
	}
	return found
}

// deliver delivers n items at their first attempts, so that the machine assumes good data.
func (w *model) deliver(n int) {
	for range n {
		w.offer(1, 0)
		w.answer(w.running()[0], control.Delivered, 0)
		w.pass(300 * ms) // slow, so that the machine assumes no rate limit
	}
}

// TestBreakerWaitsForKnowledge checks that without earlier deliveries, three failures do not open a
// breaker: the data may be bad instead of the worker.
func TestBreakerWaitsForKnowledge(t *testing.T) {
	for known, want := range map[int]int{0: 20, 10: 6, 100: 3} {
		w := newLanes(t, control.Config{Timeout: time.Hour}, 1, 1)
		w.deliver(known)
		n := 0
		for ; w.m.Status().Lanes[0].State != window.Open && n < 50; n++ {
			w.offer(1, 0)
			w.answer(w.running()[0], control.Retryable, 0)
			w.pass(10 * ms)
		}
		if n < want-1 || n > want+1 {
			t.Errorf("after %d deliveries %d failures in a row open the breaker, want about %d", known, n, want)
		}
	}
}

func TestBreakerOpensAndProbes(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: time.Hour}, 1, 1)
	w.deliver(150)
	for range 3 {
		w.offer(1, 0)
		w.answer(w.running()[0], control.Retryable, 0)
		w.pass(10 * ms)
	}
	opened := w.now
	s := w.m.Status().Lanes[0]
	if s.State != window.Open || s.Gate != "breaker" {
		t.Fatalf("after three failures in a row the lane is %+v, want OPEN", s)
	}
	var waits []time.Duration
	for w.now < opened+5*time.Minute {
		if !w.offer(1, 0) || w.m.Room() {
			t.Fatal("there is not room for just one item to probe with")
		}
		from := w.now
		w.pass(w.m.Status().Lanes[0].Until - w.now)
		waits = append(waits, w.now-from)
		if len(w.tries) != 1 || w.m.Status().Lanes[0].State != window.Probing {
			t.Fatalf("%d attempts when the wait is over, want one probe: %+v", len(w.tries), w.m.Status().Lanes[0])
		}
		x := w.running()[0]
		if x.item.starts > 1 {
			t.Error("a probe takes an item that failed before")
		}
		w.answer(x, control.Retryable, 0)
	}
	at := time.Duration(0)
	longest := time.Duration(0)
	for i, d := range waits {
		limit := 30 * sec
		if at < time.Minute {
			limit = sec
		}
		if i == 0 {
			limit = 500 * ms
		}
		if d > limit || d < min(limit, 500*ms)/2 {
			t.Errorf("wait %d, %v after the breaker opened, is %v; want at most %v", i, at, d, limit)
		}
		at += d
		longest = max(longest, d)
	}
	if longest < 15*sec {
		t.Errorf("the longest wait in five minutes is %v, want up to 30 s", longest)
	}
	w.offer(1, 0)
	w.pass(w.m.Status().Lanes[0].Until - w.now)
	w.answer(w.running()[0], control.Delivered, 0)
	if s := w.m.Status().Lanes[0]; s.State == window.Open {
		t.Errorf("a good probe leaves %+v", s)
	}
	w.drain()
}

func TestAtMostHalfAreOpen(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: time.Hour}, 1, 5)
	for range 2000 {
		w.fill()
		if len(w.tries) == 0 {
			at, ok := w.m.Wake()
			if !ok {
				t.Fatal("stuck")
			}
			w.pass(max(0, at-w.now))
			continue
		}
		w.answer(w.running()[0], control.Retryable, 0) // the model checks the number of open lanes
		if w.now > time.Minute {
			break
		}
	}
	open, suspected := 0, 0
	for _, l := range w.m.Status().Lanes {
		switch l.State {
		case window.Open, window.Probing:
			open++
		case window.Busy:
			suspected++
		}
	}
	if open != 2 || suspected != 3 {
		t.Errorf("%d lanes are open and %d held, want 2 and 3: %+v", open, suspected, w.m.Status().Lanes)
	}
	starts := w.starts
	from := w.now
	for w.now < from+time.Minute {
		if len(w.tries) > 1 {
			t.Fatalf("%d probes at once while everything fails", len(w.tries))
		}
		if len(w.tries) == 1 {
			w.answer(w.running()[0], control.Retryable, 0)
		}
		at, ok := w.m.Wake()
		if !ok {
			t.Fatal("the probes have ended")
		}
		w.pass(max(0, at-w.now))
	}
	if n := w.starts - starts; n > 61*4 {
		t.Errorf("%d probes in a minute", n)
	}
	for len(w.tries) == 0 {
		at, _ := w.m.Wake()
		w.pass(max(0, at-w.now))
	}
	w.answer(w.running()[0], control.Delivered, 0)
	if len(w.tries) < 4 {
		t.Errorf("after one good probe %d attempts run, want every lane tried: %+v", len(w.tries), w.m.Status().Lanes)
	}
	w.drain()
}

// TestMostFailButOthersDeliver checks that when seven of ten lanes fail, the other three deliver at
// full speed.
func TestMostFailButOthersDeliver(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: time.Hour}, 1, 10)
	good := 0
	for w.now < 20*sec {
		w.fill()
		for _, x := range w.running() {
			if x.lane < 3 {
				w.answer(x, control.Delivered, 0)
				good++
			} else {
				w.answer(x, control.Retryable, 0)
			}
		}
		w.pass(10 * ms)
	}
	if want := 3 * 2000 * 9 / 10; good < want {
		t.Errorf("%d deliveries by the three lanes that work, want at least %d", good, want)
	}
	if bad := int(w.starts) - good; bad > 7*60 {
		t.Errorf("%d attempts into the seven that fail in 20 s", bad)
	}
	w.drain()
}

func TestLateAckHastensTheProbe(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: sec}, 3, 2)
	w.deliver(150)
	w.fill()
	w.pass(sec)
	late := w.at(0)
	if s := w.m.Status().Lanes[0]; s.State != window.Open {
		t.Fatalf("three overdue in a row and the lane is %v", s.State)
	}
	w.answer(late[0], control.Delivered, 0)
	if s := w.m.Status().Lanes[0]; s.State != window.Probing && s.Gate == "breaker" && s.Until > w.now {
		t.Errorf("it has answered after all and is still %v until %v", s.State, s.Until)
	}
	w.drain()
}
