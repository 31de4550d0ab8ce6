package admin

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the descriptions of all metrics of /metrics, in the order in which they are
// defined.
func Metrics() (all []*prometheus.Desc) {
	descs := make(chan *prometheus.Desc, 1000)
	collector{}.Describe(descs)
	close(descs)
	for d := range descs {
		all = append(all, d)
	}
	return all
}
