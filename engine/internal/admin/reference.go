package admin

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the descriptions of the metrics that are computed from the status. It omits the
// other metrics of /metrics: those of the process, of the Go runtime and of Options.Metrics.
func Metrics() (all []*prometheus.Desc) {
	descs := make(chan *prometheus.Desc, 1000)
	collector{}.Describe(descs)
	close(descs)
	for d := range descs {
		all = append(all, d)
	}
	return all
}
