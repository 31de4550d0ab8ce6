package metrics

import "github.com/prometheus/client_golang/prometheus"

// NewLatency returns a histogram of the time from reading a batch until it is delivered or
// dead-lettered.
func NewLatency() *prometheus.HistogramVec {
	return newHistogram("penstock_settled_seconds",
		"Time from reading a batch until it was delivered or dead-lettered.")
}

// NewRoundTrips returns a histogram of the duration of delivery attempts.
func NewRoundTrips() *prometheus.HistogramVec {
	return newHistogram("penstock_round_trip_seconds",
		"Time of an attempt, from its start until its response, failure or abandonment.")
}

// newHistogram returns a histogram with the labels pipeline and route. It has classic buckets from
// 1 ms to an hour, and native buckets.
func newHistogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name,
		Help: help,
		Buckets: []float64{
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
		},

		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	}, []string{"pipeline", "route"})
}
