package window

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestProbesOfWideWindowsAreUnbiased uses a worker without a queue that answers after 100 ms on
// average. It checks that many probes do not take the fast answers, which come back first, for the
// average.
func TestProbesOfWideWindowsAreUnbiased(t *testing.T) {
	for _, deviation := range []float64{0.02, 0.05, 0.1} {
		for seed := range uint64(5) {
			random := rand.New(rand.NewPCG(seed, 9))
			w := Queue{Initial: 100, Max: 100}.New().(*queueWindow)
			type attempt struct {
				sent, back time.Duration
				ahead      int
				done       float64
				epoch      uint32
			}
			var out []attempt
			now, done := time.Duration(1), 0.0
			send := func() {
				for len(out) < int(w.Limit()) {
					rtt := time.Duration((1 + deviation*random.NormFloat64()) * float64(100*ms))
					out = append(out, attempt{now, now + rtt, len(out) + 1, done, w.Epoch()})
				}
			}
			nextProbe, probes := 5*time.Second, 0
			for send(); now < 2*time.Minute; send() {
				first := 0
				for i := range out {
					if out[i].back < out[first].back {
						first = i
					}
				}
				a := out[first]
				out[first] = out[len(out)-1]
				out = out[:len(out)-1]
				now = a.back
				done++
				w.OnSample(Sample{
					Now: now, RoundTrip: now - a.sent, Cost: 1, Mean: 1,
					InFlightAtSend: float64(a.ahead), Done: done - a.done,
					Limited: true, Epoch: a.epoch,
				})
				if now > nextProbe && !w.Probing() && !w.Starting() {
					probes++
					nextProbe += 5 * time.Second
					w.BeginProbe(now)
				}
			}
			if probes < 20 {
				t.Errorf("deviation %v, seed %d: %d probes, want at least 20", deviation,
					seed, probes)
			}
			if err := math.Abs(w.Base().Seconds()/0.1 - 1); err > 0.03 {
				t.Errorf("deviation %v, seed %d: the base is %v, want 100ms within 3%%", deviation,
					seed, w.Base())
			}
		}
	}
}

// TestNoProbeOfReportedWaits checks that a worker is not probed while it reports how long batches
// wait. A probe under way narrows the window until the first report. Answers to batches sent during
// the probe do not widen the window.
func TestNoProbeOfReportedWaits(t *testing.T) {
	for _, a := range []Algorithm{Queue{Initial: 4}, AIMD{Initial: 4}, Credit{}} {
		w := a.New().(Prober)
		now, taken := time.Duration(0), uint64(0)
		answer := func(inFlight float64, epoch uint32, reportsWait bool) {
			now += 50 * ms
			taken++
			wait := time.Duration((inFlight - 1) * float64(50*ms))
			s := Sample{
				Now: now, RoundTrip: wait + 50*ms, Cost: 1, Mean: 1, InFlightAtSend: inFlight,
				Done: inFlight, Limited: true, Epoch: epoch,
				Advert: Advert{Valid: true, Credit: taken + 100, Taken: taken},
			}
			if reportsWait {
				s.Advert.Wait, s.Advert.WaitKnown = wait, true
			}
			w.OnSample(s)
		}
		for range 100 {
			answer(w.Limit(), w.Epoch(), false)
		}
		if w.ProbeWithin() == 0 {
			t.Errorf("%s: a worker that reports no waits is not probed", a.Name())
		}
		before := w.Limit()
		w.BeginProbe(now)
		if w.Limit() >= before {
			t.Errorf("%s: the probe narrows the window from %v to %v", a.Name(), before, w.Limit())
		}
		during := w.Epoch()
		answer(1, during, true)
		if w.Probing() || w.ProbeWithin() != 0 {
			t.Errorf("%s: after a reported wait: probing %v, next probe within %v", a.Name(),
				w.Probing(), w.ProbeWithin())
		}
		for range 100 {
			answer(1, during, true)
		}
		if w.Limit() > before {
			t.Errorf("%s: answers to batches of a probe widen the window from %v to %v",
				a.Name(), before, w.Limit())
		}
		answer(1, w.Epoch(), false)
		if w.ProbeWithin() == 0 {
			t.Errorf("%s: a worker that has stopped reporting waits is not probed", a.Name())
		}
	}
}
