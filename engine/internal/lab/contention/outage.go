//penstock:pure

package contention

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/kernel"
)

// Window is the time over which a burst is counted.
const Window = 50 * time.Millisecond

// maxAttempts bounds the attempts of a client in an outage, for policies that never wait.
const maxAttempts = 1_000_000

// Loss is the cost of an outage with one policy. For several trials, it has the means.
type Loss struct {
	Wasted     float64       // attempts that failed because of the outage, per client
	Delay      time.Duration // from the recovery to a client's success, mean over the clients
	DelayWorst time.Duration // of the last client
	Burst      float64       // most attempts in any Window after the recovery
	GaveUp     float64       // clients that gave up before the end of the outage
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

// Outage runs clients against a service that is down from time 0 to length, plus a random part of
// up to a tenth. With a constant length, the delay of a policy without jitter would depend on the
// wait that happens to contain the recovery. All clients call within the first Latency, fail at
// once, and retry according to p until they succeed. A failed attempt takes two HopMeans. The
// recovered service serves all clients at once, so the result shows only the timing of the clients.
func Outage(p backoff.Policy, clients int, length time.Duration, seed, trial uint64) Loss {
	rng := kernel.Rand(seed, trial)
	length += time.Duration(rng.Int64N(int64(length/10) + 1))
	var loss Loss
	var total time.Duration
	var back []time.Duration // times of the clients' successes, since the recovery
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

// burst returns the maximum number of instants in a window.
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
