package page

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/bench/result"
)

func TestPage(t *testing.T) {
	abouts := []About{
		{Name: "w1", About: "read", Limit: "go_count", LimitAbout: "a loop",
			Targets: []result.Target{
				{Metric: "of_limit", Bound: .6, Least: true}, {Metric: "lost"},
			}},
		{Name: "w6", About: "kill", Targets: []result.Target{{Metric: "lost"}}},
		{Name: "w9", About: "rows"},
	}
	run := result.Run{
		Time: "then", Machine: "2 cores",
		Versions: map[string]string{"go": "go1", "syslog-ng": "syslog-ng 3"}, Command: "make bench",
	}
	entries := []result.Entry{
		{Line: result.Line{Workload: "w1", Program: "penstock", MBPerS: 5000, Limit: "go_count",
			OfLimit: .5, LimitMBPerS: 10000,
			LimitCPUPerGB: .125, Ratios: []float64{.4, .5, .6},
			Figures: map[string]float64{"p50_ms": 3, "p99_ms": 9}}, Run: run},
		{Line: result.Line{Workload: "limits", Program: "zcat", MBPerS: 300, Note: "unpacks"},
			Run: run},
		{Line: result.Line{Workload: "limits", Program: "cat", MBPerS: 500,
			Note: "cat FILE | cat >/dev/null"}, Run: run},
		{Line: result.Line{Workload: "w1", Program: "syslog-ng", MBPerS: 136, Limit: "go_count",
			OfLimit: .01}, Run: run},
		{Line: result.Line{
			Workload: "w6", Program: "penstock", MBPerS: 9, Limit: "none", Runs: 2,
			Figures: map[string]float64{"kills": 5},
		}, Run: run},
	}
	shares := []result.Share{{Of: "kernel: read", Share: .6}, {Of: "kit/lines", Share: .2},
		{Of: "runtime", Share: .01}}
	why := Why{
		Reasons:  map[string]string{"w1": "it reads twice", "w6": "never told"},
		Profiles: result.Profiles{"w1": {Time: "then", Shares: shares}},
	}
	text, err := Page(entries, abouts, why)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| w1 | read; limit: a loop | ≥ 0.6 of the limit, 0 lost | **0.5** [0.4-0.6], " +
			"3 pairs | **missed**: 0.5 of the limit, by 17 % |",
		"| w1 | **missed**: 0.5 of the limit, by 17 % | it reads twice | " +
			"[profile](plots/profile-w1.svg) of then: " +
			"kernel: read 60 %, kit/lines 20 % |",
		"| w6 | kill | 0 lost | 2 runs | holds |", "| w9 | rows |  |  | not measured |",
		"| w1 | 5000 | 10000 go_count | 0.00 | 0.12 | 0 | 3, 9 | 0 | 0 |  |",
		"| w6 | 9 |  | 0.00 |  | 0 |  | 0 | 0 | 5 kills |",
		"| zcat | unpacks | 300 | 0.00 |",
		"1. then UTC, 2 cores; go1; syslog-ng 3; `make bench`",
		"| | penstock | vector | fluent-bit | syslog-ng | ",
		"| w1 | **0.5** (5000) | elsewhere 0.006 (95) | elsewhere 0.033 (289) | **0.01** (136) |",
		"These programs did not take part in the runs above: vector, fluent-bit, loggie, " +
			"otelcol, rsyslog, telegraf, flume, logstash.",
		"| cat | cat FILE \\| cat >/dev/null | 500 | 0.00 |",
		"| syslog-ng | flow-control | 0 / 5.8k-9.0k | 0 / 16k | 0 / 0, 0.2 s |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "never told") {
		t.Error("a reason is given for what holds")
	}
	svg := figure(entries, abouts)
	if !strings.Contains(svg, "w1: read") || !strings.Contains(svg, "0.006 (95 MB/s)") ||
		!strings.HasSuffix(svg, "</svg>\n") {
		t.Errorf("the figure is %s", svg)
	}
}
