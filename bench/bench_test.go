package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/bench/result"
)

// TestJudge checks the results of -gate, -keep and -check for the same lines.
func TestJudge(t *testing.T) {
	line := func(workload string, ratio, others float64) result.Line {
		return result.Line{
			Workload: workload, Program: ours, OfLimit: ratio, Ratios: []float64{ratio, ratio},
			Figures: map[string]float64{"others_cores": others},
		}
	}
	path := filepath.Join(t.TempDir(), "ratios.json")
	kept := result.Kept{"w1": .5, "w2_ack": .7}
	if err := (result.Ratios{"here": kept, "there": {"w1": .3}}).Write(path); err != nil {
		t.Fatal(err)
	}
	gate := &env{options: options{gate: true, kept: path}}
	if err := gate.judge([]result.Line{line("w1", .41, 0), line("w2_ack", .6, 0)},
		kept); err != nil {
		t.Errorf("14 %% and 18 %% below: %v", err)
	}
	err := gate.judge([]result.Line{line("w1", .39, 0)}, kept)
	if err == nil || !strings.Contains(err.Error(), "w1 reaches 0.390") ||
		!strings.Contains(err.Error(), "w2_ack was not measured") {
		t.Errorf("22 %% below, and one missing: %v", err)
	}
	lost := line("w1", .9, 0)
	lost.Lost = 1
	if err := gate.judge([]result.Line{lost, line("w2_ack", .9, 0)}, kept); err == nil {
		t.Error("a lost record passes")
	}
	keep := &env{options: options{keep: true, kept: path, machine: "here"}}
	err = keep.judge([]result.Line{line("w1", .55, .1), line("w2_ack", .9, 1.5), line("w3", .9, 0)},
		nil)
	if err == nil || !strings.Contains(err.Error(), "w2_ack is not kept") {
		t.Errorf("a disturbed ratio: %v", err)
	}
	now, err := result.ReadRatios(path)
	if here := now["here"]; err != nil || here["w1"] != .55 || here["w2_ack"] != .7 ||
		len(here) != 2 || now["there"]["w1"] != .3 {
		text, _ := os.ReadFile(path)
		t.Errorf("%s, %v", text, err)
	}
}

// TestJudgeLines compares two recorded files of results with the ratios of an earlier run, as -gate
// does. In the first recording, penstock ran normally. In the second one, a script started penstock
// 0.3 s late.
func TestJudgeLines(t *testing.T) {
	ratios := func(kept result.Kept) string {
		path := filepath.Join(t.TempDir(), "ratios.json")
		if err := (result.Ratios{"here": kept, "there": {"w1": .1}}).Write(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		lines string
		kept  result.Kept
		wrong []string // "": none
	}{
		{"lines.jsonl", result.Kept{"w1": .588, "w3": 1.055}, nil},
		{"lines.jsonl", result.Kept{"w1": .734}, nil}, // 19.9 % below
		{"lines.jsonl", result.Kept{"w1": .736},
			[]string{"w1 reaches 0.588 of its limit, 20 % below the 0.736 kept"}},
		{"lines.jsonl", result.Kept{"w1": .588, "w8": 1}, []string{"w8 was not measured"}},
		{"slowed.jsonl", result.Kept{"w1": .588},
			[]string{"w1 reaches 0.243 of its limit, 59 % below"}},
		{"slowed.jsonl", result.Kept{"w3": 1.055}, nil}, // its run is long: the wait is 11 % of it
	} {
		err := judgeLines([]string{"-ratios", ratios(c.kept), "-machine", "here",
			filepath.Join("testdata", c.lines)})
		if (err != nil) != (len(c.wrong) > 0) {
			t.Errorf("%s against %v: %v", c.lines, c.kept, err)
		}
		for _, want := range c.wrong {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s against %v: %v, want %s", c.lines, c.kept, err, want)
			}
		}
	}
	if err := judgeLines([]string{"-ratios", ratios(result.Kept{}), "-machine", "here",
		"testdata/none.jsonl"}); err == nil {
		t.Error("lines that are not there pass")
	}
}

// TestUnmeasured checks that -newer leaves out workloads with recent measurements.
func TestUnmeasured(t *testing.T) {
	into := filepath.Join(t.TempDir(), "results.jsonl")
	entry := func(workload string, age time.Duration) result.Entry {
		return result.Entry{
			Line: result.Line{Workload: workload, Program: ours},
			Run:  result.Run{Time: time.Now().Add(-age).UTC().Format(result.TimeForm)},
		}
	}
	if err := result.Replace(into, []result.Entry{entry("w1", time.Hour),
		entry("w2", 5*time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for newer, want := range map[time.Duration]int{0: 3, 2 * time.Hour: 2, 6 * time.Hour: 1} {
		chosen, err := choose("w1,w2,w3")
		if err != nil {
			t.Fatal(err)
		}
		left, err := options{into: into, newer: newer}.unmeasured(chosen)
		if err != nil || len(left) != want {
			t.Errorf("newer %v: %d left, %v, want %d", newer, len(left), err, want)
		}
	}
}

// TestWorkloads checks that each workload has targets and that names are unique.
func TestWorkloads(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range abouts() {
		if seen[a.Name] || a.Target() == "" {
			t.Errorf("%s: there twice, or without a target: %q", a.Name, a.Target())
		}
		seen[a.Name] = true
	}
	for _, name := range strings.Fields(
		"w1 w2 w2_ack w3 w3_real w4_json w4_json_http w4_combined w4_dissect w4_regex " +
			"w5 w5_500ms w6 w6_live w6_file w6_sqlite w6_postgres w7 w7_backlog w8 w9 w10 files") {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestRatiosAreKept checks that ratios.json has a ratio for each of a list of workloads. With
// -gate, bench measures only the workloads that have a ratio there.
func TestRatiosAreKept(t *testing.T) {
	all, err := result.ReadRatios("ratios.json")
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := all.Of("any machine")
	for _, name := range strings.Fields(
		"w1 w1_real w2 w2_ack w3 w4_combined w4_dissect w4_json w4_regex w8 w9 w10 files") {
		if kept[name] <= 0 {
			t.Errorf("ratios.json keeps no ratio of %s: "+
				"measure it with `make bench-check BENCH=-keep`", name)
		}
	}
}
