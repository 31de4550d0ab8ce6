package page

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/bench/result"
)

func TestPage(t *testing.T) {
	abouts := []About{
		{Name: "w1", About: "read", Limit: "go_count", LimitAbout: "a loop", Target: "fast"}, {Name: "w6", About: "kill"},
	}
	run := result.Run{
		Time: "then", Machine: "2 cores", Versions: map[string]string{"go": "go1", "syslog-ng": "syslog-ng 3"}, Command: "make bench",
	}
	entries := []result.Entry{
		{Line: result.Line{Workload: "w1", Program: "penstock", MBPerS: 5000, Limit: "go_count", OfLimit: .5, LimitMBPerS: 10000,
			Ratios: []float64{.4, .5, .6}, Missed: []string{"w1 takes long"}}, Run: run},
		{Line: result.Line{Workload: "w1", Program: "syslog-ng", MBPerS: 136, Limit: "go_count", OfLimit: .01}, Run: run},
		{Line: result.Line{
			Workload: "w6", Program: "penstock", MBPerS: 9, Limit: "none", Figures: map[string]float64{"kills": 5},
		}, Run: run},
	}
	text, err := Page(entries, abouts)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| w1 | **penstock** | **0.5** [0.4-0.6] of go_count | 5000 (10000) | 0.00 | 0 | 0, 0 |  | 1 |",
		"| w1 | syslog-ng | **0.01** of go_count | 136 |",
		"| w1 | vector, absent | 0.006 elsewhere | 95 elsewhere |",
		"| w6 | **penstock** |  | 9 | 0.00 | 0 | 0, 0 | 5 kills | 1 |",
		"1. then UTC, 2 cores; go1; syslog-ng 3; `make bench`",
		"- w1 takes long", "| w1 | read | a loop | fast |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(string(text), "syslog-ng, absent"); n != 0 {
		t.Error("what was measured here is called absent")
	}
	svg := figure(entries, abouts)
	if !strings.Contains(svg, "w1: share of go_count") || !strings.Contains(svg, "0.006 elsewhere") || !strings.HasSuffix(svg, "</svg>\n") {
		t.Errorf("the figure is %s", svg)
	}
}
