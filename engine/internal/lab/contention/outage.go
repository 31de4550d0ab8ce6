//penstock:pure

package contention

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/kernel"
)

// Window is the length of the interval in which the attempts of a burst are counted.
const Window = 50 * time.Millisecond

// maxAttempts limits the failed attempts of a client in an outage. Then the client gives up. So the
// work of a simulation is bounded, even if the outage is long and the policy never waits.
const maxAttempts = 1_000_000

// Loss is the cost of an outage for clients with a policy. MeasureOutage returns the means over
// several trials.
type Loss struct {
	Wasted     float64       // failed attempts per client
	Delay      time.Duration // mean time from the recovery to the success of a client
	DelayWorst time.Duration // time from the recovery to the success of the last client
	Burst      float64       // most successful attempts within any Window after the recovery
	GaveUp     float64       // number of clients that gave up before the end of the outage
}

// MeasureOutage runs trials and returns the means.
func MeasureOutage(p backoff.Policy, clients int, length time.Duration, trials int,
	seed uint64) Loss {
	var wasted, delay, worst, most, gaveUp sum
	for i := range trials {
		l := Outage(p, clients, length, seed, uint64(i))
		wasted.add(l.Wasted)
		delay.add(float64(l.Delay))
		worst.add(float64(l.DelayWorst))
		most.add(l.Burst)
		gaveUp.add(l.GaveUp)
	}
	return Loss{
		Wasted: wasted.mean, Delay: time.Duration(delay.mean),
		DelayWorst: time.Duration(worst.mean),
		Burst:      most.mean, GaveUp: gaveUp.mean,
	}
}

// Outage simulates clients of a service that fails from time 0 to length, plus a random time of up
// to length/10. With a policy without jitter, all clients retry at nearly the same times. The
// random time makes the recovery fall at a different point between two retries in each trial, so
// that the mean delay does not depend on a single point.
//
// Each client makes its first call at a random time before Latency. If a call fails, the client
// retries according to p until a call succeeds or p ends. A failed attempt takes twice HopMean.
// After the recovery, the service can serve all clients at once, so no call waits for another one.
func Outage(p backoff.Policy, clients int, length time.Duration, seed, trial uint64) Loss {
	rng := kernel.Rand(seed, trial)
	length += time.Duration(rng.Int64N(int64(length/10) + 1))
	var loss Loss
	var total time.Duration
	var back []time.Duration // times from the recovery to the success of each client
	wasted := 0
	for range clients {
		at := time.Duration(rng.Int64N(int64(Latency)))
		var state backoff.State
		for n := 0; at < length; n++ {
			wasted++
			wait, next, ok := p.Next(state, rng)
			if !ok || n >= maxAttempts {
				loss.GaveUp++
				at = -1
				break
			}
			state = next
			at += 2*HopMean + wait
		}
		if at >= 0 {
			delay := at - length
			total += delay
			loss.DelayWorst = max(loss.DelayWorst, delay)
			back = append(back, delay)
		}
	}
	loss.Wasted = float64(wasted) / float64(max(clients, 1))
	if len(back) > 0 {
		loss.Delay = total / time.Duration(len(back))
	}
	loss.Burst = float64(burst(back))
	return loss
}

// burst returns the maximum number of attempts within an interval of length Window.
func burst(at []time.Duration) (most int) {
	slices.Sort(at)
	first := 0
	for i := range at {
		for at[i]-at[first] >= Window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
