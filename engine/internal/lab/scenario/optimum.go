//penstock:pure

package scenario

import (
	"math"
	"slices"
	"time"
)

// Nominal returns the total rate of all workers if no event changes it, in cost per second. If the
// workers share one server, Nominal returns the rate of this server. For a link, it returns the
// best rate of the link.
func (s *Scenario) Nominal() float64 {
	if s.Link != nil {
		rate, _ := s.Link.Best()
		return rate * s.Size.Mean()
	}
	sum := 0.0
	for i := range s.Workers {
		sum += s.Workers[i].Rate
	}
	if s.Shared != nil {
		return s.Shared.Rate // workers only forward to the shared server
	}
	return sum
}

// Capacity returns the highest possible delivery rate at a time, in cost per second. It includes
// the effects of the events at that time, and the mean effect of pauses.
func (s *Scenario) Capacity(at time.Duration) float64 {
	if s.Link != nil {
		return s.Nominal()
	}
	sum := 0.0
	for i := range s.Workers {
		sum += s.able(i, at)
	}
	if s.Shared != nil {
		sum = min(sum, s.Shared.Rate)
	}
	if p := s.Pauses; p.Every > 0 {
		sum *= 1 - p.For.Seconds()/p.Every.Seconds()
	}
	return sum
}

// able returns the highest rate of worker i at a time. It is 0 if the worker hangs, is paused by an
// event, fails all batches, or advertises an empty window. able ignores s.Pauses.
func (s *Scenario) able(i int, at time.Duration) float64 {
	rate, limit := s.Workers[i].Rate, math.Inf(1)
	if s.Shared != nil {
		rate = limit // forwarding takes no time
	}
	for j := range s.Events {
		e := &s.Events[j]
		if at < e.At || at >= e.Until(s.Duration) || !e.About(int32(i)) {
			continue
		}
		switch e.Kind {
		case Rate:
			if rate = e.Limit; e.Factor > 0 {
				rate = s.Workers[i].Rate * e.Factor
			}
		case Hang, Pause:
			return 0
		case Fail:
			if e.Share >= 1 {
				return 0
			}
		case Throttle:
			limit = e.Limit * s.Size.Mean()
		case Credit:
			if e.Limit == 0 {
				return 0
			}
		}
	}
	return min(rate, limit)
}

// Offered returns the mean rate of the load in cost per second. A burst does not count. Offered
// returns 0 if all batches wait from the start, both for an endless backlog and for a given number
// of batches.
func (s *Scenario) Offered() float64 {
	switch {
	case s.Load.Poisson > 0:
		return s.Load.Poisson * s.Nominal()
	case s.Load.Every > 0:
		return s.Size.Mean() / s.Load.Every.Seconds()
	}
	return 0
}

// Ideal returns the maximum cost that can be delivered from one time to another. While there is a
// backlog, the ideal rate is the capacity. At all other times, it is the smaller of the capacity
// and the offered load. A load that waits from the start counts as a backlog without an end.
func (s *Scenario) Ideal(from, to time.Duration) float64 {
	lambda := s.Offered()
	backlog, sum := 0.0, 0.0
	cuts := s.cuts(from, to)
	for i := 0; i+1 < len(cuts); i++ {
		a, b := cuts[i], cuts[i+1]
		if a >= to {
			break
		}
		span := (b - a).Seconds()
		if s.Load.Burst.Batches > 0 && a == s.Load.Burst.At {
			backlog += float64(s.Load.Burst.Batches) * s.Size.Mean()
		}
		able := s.Capacity(a)
		done := able * span
		if lambda > 0 {
			done = min(done, lambda*span+backlog)
			backlog = max(0, backlog+lambda*span-done)
		}
		if a >= from {
			sum += done
		}
	}
	return sum
}

// idealStep is the time step of Ideal under an open load, that is, a load with batches that arrive
// over time (see Offered). Steps are needed, because a backlog may end at any time between two
// events.
const idealStep = 10 * time.Millisecond

// cuts returns the times at which the ideal rate may change. Under an open load with events or a
// burst, these include the multiples of idealStep before to.
func (s *Scenario) cuts(from, to time.Duration) []time.Duration {
	t := []time.Duration{0, from, to}
	for i := range s.Events {
		e := &s.Events[i]
		t = append(t, e.At, e.Until(s.Duration))
	}
	if s.Load.Burst.Batches > 0 {
		t = append(t, s.Load.Burst.At)
	}
	if s.Offered() > 0 && (len(s.Events) > 0 || s.Load.Burst.Batches > 0) {
		for at := time.Duration(0); at < to; at += idealStep {
			t = append(t, at)
		}
	}
	slices.Sort(t)
	return slices.Compact(t)
}

// Product returns the cost that must be in flight to keep every worker just busy. It is the sum
// over the workers of the rate times the round trip of a batch that does not queue. If the scenario
// has a link or a server that all workers share, the product is computed for that one receiver.
func (s *Scenario) Product() float64 {
	if s.Link != nil {
		rate, _ := s.Link.Best()
		return rate * s.Link.Delay.Seconds() * (1 + s.Link.Jitter) * s.Size.Mean()
	}
	network := (s.RTT + s.Jitter).Seconds()
	mean := s.Size.Mean()
	if s.Shared != nil {
		return s.Shared.Rate*network + mean*float64(s.Shared.Slots)
	}
	sum := 0.0
	for i := range s.Workers {
		sum += s.Workers[i].Rate*network + mean*float64(s.Workers[i].Slots)
	}
	return sum
}
