//penstock:pure

package flow

import "math"

// Throughput of a closed network: window batches circulate between a station of slots parallel exponential servers,
// rate batches per second together, and a network in which each spends think seconds. It is the exact solution that
// mean-value analysis computes (Reiser and Lavenberg 1980), here by the birth and death of what is at the station.
func Throughput(window, slots int, rate, think float64) float64 {
	if think <= 0 {
		return rate * float64(min(window, slots)) / float64(slots)
	}
	mu := rate / float64(slots)
	// In logarithms: a window of hundreds overflows otherwise.
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

// enough is the share of the optimum from which a window counts as wide enough.
const enough = 0.99

// WStar is the smallest total window, in cost, whose throughput by mean-value analysis is at least 0.99 of the workers'
// nominal rate. Throughput is concave in each window, so each step goes where it helps most.
func (s *Scenario) WStar() float64 {
	mean := s.Size.Mean()
	if s.Link != nil {
		best, level := s.Link.best()
		for n := 1; n < level; n++ {
			if s.Link.throughput(float64(n)) >= enough*best {
				return float64(n) * mean
			}
		}
		return float64(level) * mean
	}
	stations := s.Workers
	if s.Shared != nil {
		stations = []Worker{*s.Shared}
	}
	think := (s.RTT + s.Jitter).Seconds()
	windows := make([]int, len(stations))
	now := make([]float64, len(stations))
	next := make([]float64, len(stations))
	target, sum, total := 0.0, 0.0, 0
	for i := range stations {
		w := &stations[i]
		target += enough * w.Rate / mean
		next[i] = Throughput(1, w.Slots, w.Rate/mean, think)
	}
	for sum < target {
		best, gain := 0, -1.0
		for i := range stations {
			if g := next[i] - now[i]; g > gain {
				best, gain = i, g
			}
		}
		w := &stations[best]
		sum += gain
		total++
		windows[best]++
		now[best] = next[best]
		next[best] = Throughput(windows[best]+1, w.Slots, w.Rate/mean, think)
		if gain <= 0 {
			break
		}
	}
	return float64(total) * mean
}
