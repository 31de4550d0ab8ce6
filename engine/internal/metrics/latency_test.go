package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestHistograms checks that a histogram has both classic and native buckets, for old and new
// Prometheus servers.
func TestHistograms(t *testing.T) {
	for name, h := range map[string]*prometheus.HistogramVec{
		"penstock_settled_seconds": NewLatency(), "penstock_round_trip_seconds": NewRoundTrips(),
	} {
		h.WithLabelValues("p", "r").Observe(.02)
		reg := prometheus.NewRegistry()
		reg.MustRegister(h)
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != name {
			t.Fatalf("%s: %v, %v", name, families, err)
		}
		got := families[0].Metric[0].GetHistogram()
		classic := 0
		for _, b := range got.GetBucket() {
			if b.GetUpperBound() < .02 && b.GetCumulativeCount() > 0 ||
				b.GetUpperBound() > .02 && b.GetCumulativeCount() != 1 {
				t.Errorf("%s: %d values up to %v", name, b.GetCumulativeCount(), b.GetUpperBound())
			}
			classic++
		}
		if classic < 10 || len(got.GetPositiveSpan()) != 1 || len(got.GetPositiveDelta()) != 1 {
			t.Errorf("%s: %d classic buckets, native ones %v", name, classic, got.GetPositiveSpan())
		}
	}
}
