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
