package flowsim_test

import "math"

// throughput returns the throughput of one worker while the number of in-flight batches is constant
// (window). Each batch is served by the worker, and then spends some seconds in the network
// (think). The worker has several parallel servers (slots) with exponential service times. Together
// they serve a number of batches per second (rate).
//
// The model is a closed queueing network. The result equals that of mean-value analysis (Reiser and
// Lavenberg 1980), and is computed from the birth-death process of the worker.
func throughput(window, slots int, rate, think float64) float64 {
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
