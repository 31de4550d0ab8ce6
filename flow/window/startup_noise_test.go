package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// worker serves several batches at once, each in the same time, with a configurable delay of
// answers.
type worker struct {
	w    Window
	base time.Duration
	free []time.Duration                // when each place is free
	late func(served int) time.Duration // delay of the answer to the nth batch
	// maps the time of an event to its actual time; nil for no change
	stop      func(at time.Duration) time.Duration
	fly       []sent
	now       time.Duration
	served    int
	delivered float64
}

type sent struct {
	at, back    time.Duration
	ahead, done float64 // in flight when sent, and delivered before
}

func newWorker(slots int, base time.Duration) *worker {
	return &worker{w: Queue{}.New(), base: base, free: make([]time.Duration, slots),
		late: func(int) time.Duration { return 0 }}
}

// answer sends batches until the window is full, and then passes the next answer to the window.
func (k *worker) answer() {
	for len(k.fly) < int(k.w.Limit()) {
		place := 0
		for i, at := range k.free {
			if at < k.free[place] {
				place = i
			}
		}
		k.free[place] = max(k.now, k.free[place]) + k.base
		k.served++
		back := k.free[place] + k.late(k.served)
		if k.stop != nil {
			back = k.stop(back)
		}
		k.fly = append(k.fly, sent{k.now, back, float64(len(k.fly) + 1), k.delivered})
	}
	next := 0
	for i, s := range k.fly {
		if s.back < k.fly[next].back {
			next = i
		}
	}
	s := k.fly[next]
	k.fly = slices.Delete(k.fly, next, next+1)
	k.now = s.back
	k.delivered++
	k.w.OnSample(Sample{
		Now: k.now, RoundTrip: k.now - s.at, Cost: 1, InFlightAtSend: s.ahead,
		Done:    k.delivered - s.done,
		Limited: true, Epoch: k.w.Epoch(),
	})
}

// widths returns the windows of the start-up up to the first that reaches upTo, and the number of
// additional batches that a window of upTo would have sent in that time.
func (k *worker) widths(upTo int) (path []int, lost float64) {
	for i := 0; i < 4096; i++ {
		if n := int(k.w.Limit()); len(path) == 0 || path[len(path)-1] != n {
			path = append(path, n)
		}
		if path[len(path)-1] >= upTo || !k.w.(Starter).Starting() {
			break
		}
		k.answer()
	}
	return path, float64(upTo)*k.now.Seconds()/k.base.Seconds() - k.delivered
}

// TestStartUpSteps checks that the start-up takes four round trips to find that a worker serves 40
// batches at once, in whatever order its answers come.
func TestStartUpSteps(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		k := newWorker(40, 500*ms)
		k.late = func(int) time.Duration { return time.Duration(rnd.ExpFloat64() * float64(2*ms)) }
		path, lost := k.widths(40)
		if got := fmt.Sprint(path); got != "[1 2 12 32 48]" || lost > 39+38+28+8+4 {
			t.Errorf("seed %d: the window went %s, %.1f batches were not sent; "+
				"want [1 2 12 32 48] and about 113", seed, got, lost)
		}
	}
}

// TestStartUpOneLate checks that one randomly late answer in a round trip changes no step.
func TestStartUpOneLate(t *testing.T) {
	// The numbers of the answers in the round trips with windows of 12 and of 32.
	for _, c := range []struct{ first, last int }{{4, 14}, {16, 46}} {
		for one := c.first; one <= c.last; one++ {
			k := newWorker(40, 50*ms)
			k.late = func(n int) time.Duration {
				if n == one {
					return 12 * ms
				}
				return time.Duration(n%7) * 100 * time.Microsecond
			}
			if path, _ := k.widths(40); fmt.Sprint(path) != "[1 2 12 32 48]" {
				t.Errorf("with answer %d late the window went %v, want [1 2 12 32 48]", one, path)
			}
		}
	}
}

// TestStartUpStall checks that a machine that stops for some milliseconds while answers arrive does
// not end the start-up.
func TestStartUpStall(t *testing.T) {
	for _, trips := range []float64{2, 3, 4, 5} {
		k := newWorker(40, 50*ms)
		from := time.Duration(trips*50)*ms - 5*ms
		k.late = func(n int) time.Duration { return time.Duration(n%7) * 100 * time.Microsecond }
		k.stop = func(at time.Duration) time.Duration {
			if at >= from && at < from+25*ms {
				return from + 25*ms + (at-from)/100
			}
			return at
		}
		path, _ := k.widths(40)
		if path[len(path)-1] < 40 {
			t.Errorf("stopped after %v round trips the window went %v, and not to 40: %s", trips,
				path, k.w.Reason())
		}
	}
}

// TestStartUpQueueIsNoStall checks that the start-up ends as soon as batches wait at the worker,
// near the number of batches that it serves at once. The start-up must not take this waiting for a
// stall.
func TestStartUpQueueIsNoStall(t *testing.T) {
	for _, slots := range []int{3, 8, 11, 15, 20, 27, 31} {
		for seed := range uint64(10) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			k := newWorker(slots, 50*ms)
			k.late = func(int) time.Duration {
				return time.Duration(rnd.ExpFloat64() * float64(ms) / 2)
			}
			most := 0.0
			for i := 0; i < 40*slots && k.w.(Starter).Starting(); i++ {
				k.answer()
				most = max(most, k.w.Limit())
			}
			if k.w.(Starter).Starting() ||
				most > max(startStep1, startStep2/startStep1*float64(slots+1)) {
				t.Errorf("%d slots, seed %d: the window was %v; starting %v", slots, seed, most,
					k.w.(Starter).Starting())
			}
			if got := k.w.Limit(); got < 0.75*float64(slots) || got > 1.6*float64(slots)+1 {
				t.Errorf("%d slots, seed %d: the window is %v after the start-up: %s", slots, seed,
					got, k.w.Reason())
			}
		}
	}
}

// TestOvertakenIsNotDrained checks a batch that was alone when sent. If it comes back after later
// ones, it was delayed by them and does not show an idle worker; if it comes back first, it does.
func TestOvertakenIsNotDrained(t *testing.T) {
	w := Queue{}.New().(*queueWindow)
	w.OnSample(Sample{Now: 50 * ms, RoundTrip: 50 * ms, Cost: 1, InFlightAtSend: 1, Done: 1,
		Limited: true, Epoch: w.Epoch()})
	w.OnSample(Sample{Now: 101 * ms, RoundTrip: 51 * ms, Cost: 1, InFlightAtSend: 2, Done: 1,
		Limited: true, Epoch: w.Epoch()})
	w.OnSample(Sample{Now: 151 * ms, RoundTrip: 101 * ms, Cost: 1, InFlightAtSend: 1, Done: 2,
		Limited: true, Epoch: w.Epoch()})
	if w.Base() != 50*ms || !w.base.steady() {
		t.Errorf("the base is %v, calm %v; want 50ms, true", w.Base(), w.base.steady())
	}
	if w.Limit() >= 3 {
		t.Errorf("the window is %v, want less than 3: %s", w.Limit(), w.Reason())
	}
}
