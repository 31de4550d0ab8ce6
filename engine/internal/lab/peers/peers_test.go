package peers

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

const ms = time.Millisecond

// TestVegasSequences repeats the sequences of the tests of Netflix' library.
func TestVegasSequences(t *testing.T) {
	step := func(v *vegas, rtt time.Duration, inFlight float64, dropped bool, want float64) {
		t.Helper()
		v.update(rtt, inFlight, dropped)
		if got := math.Floor(v.limit); got != want {
			t.Errorf("after %v with %g in flight: limit %g, want %g", rtt, inFlight, got, want)
		}
	}
	v := newVegas(10, 20)
	step(v, 10*ms, 10, false, 10)
	step(v, 10*ms, 11, false, 16)
	v = newVegas(10, 20)
	step(v, 10*ms, 10, false, 10)
	step(v, 50*ms, 11, false, 9)
	v = newVegas(10, 20)
	step(v, 10*ms, 10, false, 10)
	step(v, 14*ms, 14, false, 10)
	v = newVegas(10, 20)
	step(v, 10*ms, 10, false, 10)
	step(v, 10*ms, 10, true, 9)
	step(v, 10*ms, 4, false, 9) // less than half in use
	half := func(l float64) float64 { return l / 2 }
	v = newVegas(100, 200)
	v.decrease, v.smoothing = half, 0.5
	step(v, 10*ms, 100, false, 100)
	step(v, 20*ms, 100, false, 75)
	step(v, 20*ms, 100, false, 56)
	v = newVegas(100, 200)
	v.decrease = half
	step(v, 10*ms, 100, false, 100)
	step(v, 20*ms, 100, false, 50)
	step(v, 20*ms, 100, false, 25)
	v = newVegas(10_000, 20_000)
	step(v, 10*ms, 10_000, false, 10_000)
	step(v, 10*ms, 10_000, false, 10_024)
}

// TestVegasAdoptsASampleAsTheBase checks that Vegas from time to time takes the latest round trip
// as its base, the round trip without a queue, even if batches are queued. With a limit of 1, it
// does so after 15 to 30 updates.
func TestVegasAdoptsASampleAsTheBase(t *testing.T) {
	v := newVegas(1, 1)
	v.update(10*ms, 1, false)
	for n := 2; n <= 31; n++ {
		v.update(20*ms, 1, false)
		if v.noLoad == 20*ms {
			if n < 15 {
				t.Errorf("the base was replaced after %d updates, want 15 to 30", n)
			}
			return
		}
	}
	t.Error("the base was never replaced")
}

// TestVectorSequences feeds VectorARC with the sequences of Vector's unit tests, with their
// decrease ratio of 0.5 and responses after 1 s. The limits must be those of Vector.
func TestVectorSequences(t *testing.T) {
	v := VectorARC{Decrease: 0.5}.New().(*vectorARC)
	now := time.Duration(0)
	interval := func(answers int, deferrals int, want float64) {
		t.Helper()
		v.Sent(int(v.Limit()))
		now += time.Second
		for range deferrals {
			v.OnNack(now, 1)
		}
		for range answers {
			v.OnSample(window.Sample{Now: now, RoundTrip: time.Second, Cost: 1, InFlightAtSend: 1})
		}
		if got := v.Limit(); got != want {
			t.Errorf("at %v: limit %g, want %g", now, got, want)
		}
	}
	interval(1, 0, 1)
	interval(1, 0, 2)
	interval(0, 1, 1)
	v, now = VectorARC{Decrease: 0.5}.New().(*vectorARC), 0
	interval(1, 0, 1)
	interval(1, 0, 2)
	interval(1, 0, 3)
	interval(1, 0, 4)
	interval(0, 1, 2)
}

func TestVectorHoldsWhatItDoesNotUse(t *testing.T) {
	v := VectorARC{Initial: 5}.New().(*vectorARC)
	for i := range 20 {
		v.Sent(3)
		v.OnSample(window.Sample{Now: time.Duration(i) * time.Second,
			RoundTrip: time.Second - time.Duration(i)*ms, Cost: 1})
	}
	if v.Limit() > 5 {
		t.Errorf("the limit grew to %g and was never reached", v.Limit())
	}
}

func TestGradient2(t *testing.T) {
	g := &gradient2{limit: 20, min: 20, max: 200}
	g.update(10*ms, 20, false)
	if want := 0.8*20 + 0.2*(20+4); g.limit != want {
		t.Errorf("limit %g, want %g: gradient 1 and a queue of 4", g.limit, want)
	}
	before := g.limit
	g.update(10*ms, before/2-1, false)
	if g.limit != before {
		t.Errorf("limit %g grew while less than half was in use", g.limit)
	}
	g = &gradient2{limit: 100, min: 20, max: 200}
	for range longWarmup {
		g.update(10*ms, 1, false)
	}
	g.update(40*ms, 100, true) // long is about 10.1 ms: gradient 0.5
	if want := 0.8*100 + 0.2*54.0; math.Abs(g.limit-want) > 1e-9 {
		t.Errorf("limit %g, want %g: the gradient is at least 0.5, drops are ignored",
			g.limit, want)
	}
	for range 1000 {
		g.update(time.Second, 100, false)
	}
	if g.limit < 190 {
		t.Errorf("limit %g under a constant round trip; it grows to its maximum, as published",
			g.limit)
	}
}

// TestWindowedThrowsAwayThinWindows checks that a second with fewer than ten samples never changes
// a limit.
func TestWindowedThrowsAwayThinWindows(t *testing.T) {
	w := NetflixVegas{}.New()
	for i := range 200 {
		w.OnSample(window.Sample{Now: time.Duration(i) * 200 * ms, RoundTrip: 200 * ms, Cost: 1,
			InFlightAtSend: 20})
	}
	if w.Limit() != 20 {
		t.Errorf("limit %g after five samples a second, want the 20 that it began with", w.Limit())
	}
	for i := range 200 {
		w.OnSample(window.Sample{Now: time.Minute + time.Duration(i)*20*ms, RoundTrip: 20 * ms,
			Cost: 1, InFlightAtSend: 20})
	}
	if w.Limit() <= 20 {
		t.Errorf("limit %g after fifty samples a second without a queue, want growth", w.Limit())
	}
}

func TestReno(t *testing.T) {
	r := Reno{}.New().(*reno)
	ack := func(n int) {
		for range n {
			r.OnSample(window.Sample{RoundTrip: 10 * ms, Cost: 1})
		}
	}
	ack(13)
	if r.window != 16 {
		t.Errorf("window %g after 13 acks of slow start from 3, want 16", r.window)
	}
	r.OnNack(time.Second, 1)
	if r.window != 8 || r.threshold != 8 {
		t.Errorf("window %g, threshold %g after a loss at 16; want 8 and 8", r.window, r.threshold)
	}
	r.OnTimeout(time.Second+5*ms, 1)
	if r.window != 8 {
		t.Errorf("window %g after a second loss within a round trip, want 8: it is the same event",
			r.window)
	}
	ack(8)
	if r.window < 8.9 || r.window > 9.1 {
		t.Errorf("window %g after a window of acks in congestion avoidance, want 9", r.window)
	}
	r.OnTimeout(2*time.Second, 1)
	if r.window != 1 || math.Abs(r.threshold-4.47) > 0.1 {
		t.Errorf("window %g, threshold %g after a timeout at 9; want 1 and half", r.window,
			r.threshold)
	}
}

func TestPeakEWMA(t *testing.T) {
	p := PeakEWMA{}.New(rand.NewPCG(1, 1)).(*peak)
	c := []dispatch.Candidate{{Lane: 0, Free: true}, {Lane: 1, Free: true}, {Lane: 2, Free: true}}
	p.Observe(0, 0, 10*ms, 0)
	p.Observe(0, 1, 30*ms, 0)
	p.Observe(0, 2, 50*ms, 0)
	choose := func(now time.Duration, want int) {
		t.Helper()
		if got := p.Choose(now, 1, 0, c); got != want {
			t.Errorf("at %v: lane %d, want %d", now, got, want)
		}
	}
	choose(0, 0)
	c[0].InFlight = 3 // 40 ms against 30
	choose(0, 1)
	c[1].Free = false
	choose(0, 0)
	c[1].Free = true
	p.Observe(ms, 1, time.Second, 0) // a peak counts at once
	choose(ms, 0)
	p.Observe(2*ms, 0, 6*ms, 0) // and so do fast errors, slowly
	choose(30*time.Second, 0)
	c = []dispatch.Candidate{{Lane: 7, Free: true, InFlight: 1}, {Lane: 1, Free: true}}
	choose(30*time.Second, 1) // unknown with something pending: the last choice
	if got := p.Choose(0, 1, 0, nil); got != -1 {
		t.Errorf("Choose of nothing = %d, want -1", got)
	}
}
