//penstock:pure

package peers

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
)

// PeakEWMA chooses the lane (worker) with the lowest load by the metric of Finagle: a moving mean
// of round trips, times the number of pending requests plus one. If a round trip is longer than the
// mean, the mean jumps to it. If it is shorter, the mean approaches it exponentially, with a time
// constant of ten seconds. Without responses, the mean approaches zero in the same way. As in
// Finagle, every response counts, even an error. Finagle compares two random lanes. PeakEWMA
// compares all lanes, so that only the metric is tested.
type PeakEWMA struct{}

// Name returns "peak_ewma".
func (PeakEWMA) Name() string { return "peak_ewma" }

// Observes marks PeakEWMA as a policy that learns from the results of attempts. So the simulator
// notifies its choosers, one for each sender, of every response.
func (PeakEWMA) Observes() {}

// New returns a chooser that breaks ties with src.
func (PeakEWMA) New(src rand.Source) dispatch.Chooser {
	return &peak{rnd: rand.New(src), cost: map[int32]*decaying{}}
}

const (
	peakTau     = 10 * time.Second
	peakPenalty = math.MaxFloat64 / 4 // load of a lane with pending batches and no response yet
)

type peak struct {
	rnd  *rand.Rand
	cost map[int32]*decaying // moving mean of round trips by lane; never iterated
}

type decaying struct {
	value float64 // seconds
	at    time.Duration
}

func (d *decaying) observe(now time.Duration, rtt float64) {
	w := math.Exp(-float64(now-d.at) / float64(peakTau))
	if rtt > d.value {
		d.value = rtt
	} else {
		d.value = d.value*w + rtt*(1-w)
	}
	d.at = now
}

// Observe records a response of any kind.
func (p *peak) Observe(now time.Duration, lane int32, roundTrip time.Duration, _ control.Outcome) {
	p.lane(now, lane).observe(now, roundTrip.Seconds())
}

func (p *peak) lane(now time.Duration, lane int32) *decaying {
	d := p.cost[lane]
	if d == nil {
		d = &decaying{at: now}
		p.cost[lane] = d
	}
	return d
}

func (p *peak) Choose(now time.Duration, _ float64, _ uint64, c []dispatch.Candidate) int {
	best, least, equal := -1, 0.0, 0
	for i := range c {
		if !c[i].Free {
			continue
		}
		d := p.lane(now, c[i].Lane)
		d.observe(now, 0)
		pending := float64(c[i].InFlight)
		load := d.value * (pending + 1)
		if d.value == 0 && pending > 0 {
			load = peakPenalty + pending
		}
		switch {
		case best < 0 || load < least:
			best, least, equal = i, load, 1
		case load == least:
			if equal++; p.rnd.IntN(equal) == 0 {
				best = i
			}
		}
	}
	return best
}
