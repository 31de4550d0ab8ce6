package result

import "testing"

func TestTarget(t *testing.T) {
	l := Line{OfLimit: .4, CPUPerGB: .5, RSSMiB: 64, Repeated: 7,
		Figures: map[string]float64{"drain_s": .3}}
	for _, c := range []struct {
		target        Target
		words, missed string
	}{
		{Target{"of_limit", .5, true}, "≥ 0.5 of the limit", "0.4 of the limit, by 20 %"},
		{Target{"of_limit", .4, true}, "≥ 0.4 of the limit", ""},
		{Target{"cpu_s_per_gb", .25, false}, "≤ 0.25 CPU-s/GB", "0.5 CPU-s/GB, 2.0 times 0.25"},
		{Target{"rss_mb", 64, false}, "≤ 64 MiB", ""},
		{Target{"lost", 0, false}, "0 lost", ""},
		{Target{"repeated", 0, false}, "0 repeated", "7 repeated"},
		{Target{"drain_s", 1, false}, "≤ 1 s to the last record", ""},
		{Target{"kills", 5, true}, "≥ 5 kills", "0 kills, by 100 %"},
		// a figure without a text
		{Target{"requests", 1, true}, "≥ requests 1", "requests 0, by 100 %"},
	} {
		if got := c.target.String(); got != c.words {
			t.Errorf("%+v is %q, want %q", c.target, got, c.words)
		}
		if got := c.target.Missed(l); got != c.missed {
			t.Errorf("%+v is missed: %q, want %q", c.target, got, c.missed)
		}
	}
}
