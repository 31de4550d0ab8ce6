//penstock:pure

package scenario

import "math"

// Throughput returns the throughput of one worker while the number of in-flight batches is constant
// (window). Each batch is served by the worker, and then spends some seconds in the network
// (think). The worker has several parallel servers (slots) with exponential service times. Together
// they serve a number of batches per second (rate).
//
// The model is a closed queueing network. The result equals that of mean-value analysis (Reiser and
// Lavenberg 1980), and is computed from the birth-death process of the worker.
func Throughput(window, slots int, rate, think float64) float64 {
	if think <= 0 {
		return rate * float64(min(window, slots)) / float64(slots)
	}
	mu := rate / float64(slots)
	// Use logarithms, because the probabilities of a window of hundreds of batches would overflow.
	logs := make([]float64, window+1)
	highest := 0.0
	for n := 1; n <= window; n++ {
		up := float64(window-n+1) / think
		down := float64(min(n, slots)) * mu
		logs[n] = logs[n-1] + math.Log(up/down)
		highest = max(highest, logs[n])
	}
	sum, busy := 0.0, 0.0
	for n, l := range logs {
		p := math.Exp(l - highest)
		sum += p
		busy += p * float64(min(n, slots))
	}
	return busy / sum * mu
}

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
