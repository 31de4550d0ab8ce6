package metrics

import "github.com/prometheus/client_golang/prometheus"

// NewLatency returns the histogram of the time from reading a batch until it is settled, by
// pipeline and route. It has classic buckets from 1 ms to about an hour, and native ones.
func NewLatency() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "penstock_settled_seconds",
		Help: "Time from reading a batch until it was delivered or dead-lettered.",
		Buckets: []float64{
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
		},

		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	}, []string{"pipeline", "route"})
}
