//penstock:pure

package scenario

// enough is the share of the nominal rate at which a window counts as wide enough.
const enough = 0.99

// WStar returns the smallest sum of windows, in cost, with which the workers reach 0.99 of their
// nominal rate, according to mean-value analysis. If the workers share one server, WStar uses this
// server instead of the workers. WStar adds one batch at a time, to the window where the batch
// increases the throughput most. This finds the smallest sum, because the throughput is a concave
// function of each window. If the scenario has a link, WStar returns the smallest cost in flight
// with which the link reaches 0.99 of its best rate.
func (s *Scenario) WStar() float64 {
	mean := s.Size.Mean()
	if s.Link != nil {
		best, level := s.Link.Best()
		for n := 1; n < level; n++ {
			if s.Link.throughput(float64(n)) >= enough*best {
				return float64(n) * mean
			}
		}
		return float64(level) * mean
	}
	workers := s.Workers
	if s.Shared != nil {
		workers = []Worker{*s.Shared}
	}
	think := (s.RTT + s.Jitter).Seconds()
	stations := make([]station, len(workers))
	target, sum, total := 0.0, 0.0, 0
	for i := range workers {
		w := &workers[i]
		target += enough * w.Rate / mean
		stations[i] = station{slots: w.Slots, mu: w.Rate / mean / float64(w.Slots), think: think,
			p: make([]float64, w.Slots)}
		stations[i].p[0] = 1
		stations[i].widen()
	}
	for sum < target {
		best := &stations[0]
		for i := range stations {
			if stations[i].gain() > best.gain() {
				best = &stations[i]
			}
		}
		if best.gain() <= 0 {
			break
		}
		sum += best.gain()
		total++
		best.widen()
	}
	return float64(total) * mean
}

// station computes the mean-value analysis of one worker and its network step by step. Each call of
// widen adds a batch to the worker's window.
type station struct {
	slots     int
	mu, think float64
	window    int
	queued    float64   // mean number of batches at the worker
	p         []float64 // probabilities of 0, 1, ... slots-1 batches at the worker
	now, last float64   // throughput with window and with window-1 batches
}

func (s *station) gain() float64 { return s.now - s.last }

func (s *station) widen() {
	s.window++
	wait := 1 + s.queued
	for j := 0; j < s.slots-1; j++ {
		wait += float64(s.slots-1-j) * s.p[j]
	}
	r := wait / (float64(s.slots) * s.mu)
	x := float64(s.window) / (s.think + r)
	s.last, s.now = s.now, x
	s.queued = x * r
	busy := x / s.mu
	for j := s.slots - 1; j >= 1; j-- {
		s.p[j] = x / (float64(j) * s.mu) * s.p[j-1]
		busy += float64(s.slots-j) * s.p[j]
	}
	s.p[0] = max(0, 1-busy/float64(s.slots)) // rounding may give a negative result
}
