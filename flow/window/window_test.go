package window

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// ack passes n acks with the given round trip to the window w. Unless idle is true, the window was
// full when their batches were sent.
func ack(w Window, n int, rtt time.Duration, idle bool) {
	for range n {
		w.OnSample(Sample{RoundTrip: rtt, Cost: 1, InFlightAtSend: max(2, w.Limit()),
			Limited: !idle, Epoch: w.Epoch()})
	}
}

func TestLinearFloorAndCeiling(t *testing.T) {
	w := Linear{Initial: 2, Max: 3, Threshold: 10 * ms}.New()
	for range 5 {
		w.OnTimeout(0, 1)
	}
	if w.Limit() != 1 || w.State() != Busy {
		t.Errorf("after five timeouts the window is %v, %v; want 1, BUSY", w.Limit(), w.State())
	}
	ack(w, 50, ms, false)
	if w.Limit() != 3 {
		t.Errorf("after fifty fast acks the window is %v, want its ceiling of 3", w.Limit())
	}
}

func TestLinearGrowsOnlyWhenUsed(t *testing.T) {
	w := Linear{Threshold: 10 * ms}.New()
	ack(w, 50, ms, true)
	if w.Limit() != 1 || w.State() != Normal {
		t.Errorf("unused the window is %v, %v; want 1, NORMAL", w.Limit(), w.State())
	}
	if !strings.Contains(w.Reason(), "not used") {
		t.Errorf("the reason does not say so: %s", w.Reason())
	}
}

func TestLateAckRestoresWindow(t *testing.T) {
	w := Linear{Initial: 3, Threshold: 10 * ms}.New()
	w.OnTimeout(0, 1)
	w.OnNack(0, 1)
	w.OnUndo(0)
	w.OnUndo(0) // there was only one timeout
	if w.Limit() != 2 || w.State() != Normal {
		t.Errorf("the window is %v, %v; want 2 (the nack stays), NORMAL", w.Limit(), w.State())
	}
	w.OnTimeout(0, 1)
	w.OnTimeout(0, 1) // has no effect at the minimum
	w.OnUndo(0)
	w.OnUndo(0)
	if w.Limit() != 2 {
		t.Errorf("the window is %v, want 2: a timeout that took nothing gives nothing back",
			w.Limit())
	}
	w.OnTimeout(0, 1)
	w.Reset(0)
	w.OnUndo(0)
	if w.Limit() != 1 {
		t.Errorf("the window is %v, want 1: nothing is given back across a restart", w.Limit())
	}
}

func TestLateSampleIsNoVerdict(t *testing.T) {
	w := Linear{Threshold: 10 * ms}.New()
	w.OnSample(Sample{RoundTrip: time.Minute, Late: true, Limited: true})
	if w.State() != Unknown {
		t.Errorf("a late sample gave a verdict: %v, %s", w.State(), w.Reason())
	}
}

// TestQueueEstimate compares linear's automatic threshold with hand-computed values.
func TestQueueEstimate(t *testing.T) {
	for _, c := range []struct {
		w, base, mean, jitter float64
		q, low, high          float64
	}{
		// drained: all of the window is in service or in transit
		{4, 0.020, 0.020, 0, 0, 3, 6},
		{4, 0.020, 0.040, 0, 2, 2.12, 4.24}, // half of it waits
		{8, 0.010, 0.080, 0, 7, 2, 3},
		{8, 0.010, 0.080, 0.5, 7, 2, 6},     // jitter widens the dead zone
		{8, 0.100, 0.080, 0, 0, 4.24, 8.49}, // a mean below the base means no queue
	} {
		q, low, high := queue(c.w, c.base, c.mean, c.jitter, 1)
		got, want := fmt.Sprintf("%.2f %.2f %.2f", q, low, high),
			fmt.Sprintf("%.2f %.2f %.2f", c.q, c.low, c.high)
		if got != want {
			t.Errorf("queue(%v, %v, %v, %v) = %s, want %s", c.w, c.base, c.mean, c.jitter,
				got, want)
		}
	}
}

// TestAutoThresholdConverges simulates a worker that serves a batch in 10 ms behind a network of 10
// ms. The window must converge to a size with a few waiting batches, and must not drift.
func TestAutoThresholdConverges(t *testing.T) {
	w := Linear{}.New()
	rtt := func() time.Duration { return max(20*ms, time.Duration(w.Limit())*10*ms) }
	w.OnSample(Sample{RoundTrip: 20 * ms, Cost: 1, InFlightAtSend: 1, Limited: true,
		Epoch: w.Epoch()})
	for range 400 {
		ack(w, int(w.Limit()), rtt(), false)
	}
	if w.Limit() < 4 || w.Limit() > 8 {
		t.Errorf("the window is %v, want 4 to 8: %s", w.Limit(), w.Reason())
	}
}

func TestDrainedProbe(t *testing.T) {
	w := Linear{Initial: 6}.New().(*linear)
	if w.ProbeWithin() != 0 {
		t.Errorf("a probe is wanted before the first sample")
	}
	ack(w, 60, 60*ms, false) // the provisional base is a queued round trip
	if got := w.ProbeWithin(); got != firstProbe {
		t.Errorf("the first probe is wanted within %v, want %v", got, firstProbe)
	}
	before, wide := w.Epoch(), w.Limit()
	w.BeginProbe(0)
	if w.State() != Probing || w.Limit() >= wide || w.Epoch() == before {
		t.Fatalf("probing: %v, window %v, epoch %d after %d", w.State(), w.Limit(),
			w.Epoch(), before)
	}
	w.OnSample(Sample{RoundTrip: time.Second, Cost: 1, InFlightAtSend: 6, Epoch: before})
	for range w.base.samplesWanted() {
		w.OnSample(Sample{RoundTrip: 20 * ms, Cost: 1, InFlightAtSend: 1, Epoch: w.Epoch()})
	}
	if w.Probing() || w.Base() != 20*ms {
		t.Errorf("after the probe: probing %v, base %v; "+
			"want 20ms, without the sample sent before it", w.Probing(), w.Base())
	}
	if got := w.ProbeWithin(); got != probeEvery {
		t.Errorf("the next probe is wanted within %v, want %v", got, probeEvery)
	}
	w.BeginProbe(0)
	for range w.base.samplesWanted() {
		w.OnSample(Sample{RoundTrip: 40 * ms, Cost: 1, InFlightAtSend: 1, Epoch: w.Epoch()})
	}
	if w.Base() != 25*ms {
		t.Errorf("the base moved to %v, want a quarter of the way to 40ms", w.Base())
	}
	w.BeginProbe(0)
	w.EndProbe(0)
	if w.Probing() || w.Base() != 25*ms {
		t.Errorf("a probe that was given up left probing %v, base %v", w.Probing(), w.Base())
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		a  Algorithm
		ok bool
	}{
		{Linear{}, true}, {Linear{Initial: 5, Max: 5}, true},
		{Linear{Threshold: time.Second, Step: PerAck}, true},
		{Linear{Initial: -1}, false}, {Linear{Max: -1}, false}, {Linear{Initial: 9, Max: 5}, false},
		{Linear{Max: maxSize + 1}, false}, {Linear{Threshold: -1}, false}, {Linear{Step: 7}, false},
		{Fixed{}, true}, {Fixed{Size: 64}, true}, {Fixed{Size: -1}, false},
		{Fixed{Size: maxSize + 1}, false},
	} {
		if err := c.a.Validate(); (err == nil) != c.ok {
			t.Errorf("%s %+v: %v", c.a.Name(), c.a, err)
		}
	}
}

// TestStateAndReasonAlwaysReadable passes each window through all kinds of events.
func TestStateAndReasonAlwaysReadable(t *testing.T) {
	for _, a := range []Algorithm{Fixed{}, Fixed{Size: 7}, Queue{}, AIMD{}, Linear{},
		Linear{Threshold: 5 * ms, Step: PerAck}} {
		w := a.New()
		see := func() {
			t.Helper()
			if w.Limit() < 1 || w.Reason() == "" || w.State().String() == "INVALID" {
				t.Errorf("%s: window %v, state %v, reason %q", a.Name(), w.Limit(), w.State(),
					w.Reason())
			}
		}
		see()
		ack(w, 9, 4*ms, false)
		see()
		ack(w, 9, 40*ms, true)
		see()
		w.OnNack(0, 1)
		see()
		w.OnTimeout(0, 1)
		see()
		w.OnUndo(0)
		see()
		if p, ok := w.(Prober); ok {
			p.BeginProbe(0)
			see()
			w.OnTimeout(0, 1)
			see()
		}
		w.Reset(0)
		see()
	}
}
