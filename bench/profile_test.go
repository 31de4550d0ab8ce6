package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/bench/plot"
	"github.com/penstock-io/penstock/bench/result"
)

func TestParseTraces(t *testing.T) {
	stacks, err := parseTraces([]byte(`File: penstock
Type: cpu
Duration: 5s, Total samples = 1.38s (27.60%)
-----------+-------------------------------------------------------
      10ms   runtime.futex
             runtime.futexwakeup
             main.main
-----------+-------------------------------------------------------
     1.20s   path/to/pkg.(*T[go.shape.*uint8]).Read (inline)
             main.main
-----------+-------------------------------------------------------
`))
	if err != nil || len(stacks) != 2 {
		t.Fatalf("%+v, %v", stacks, err)
	}
	if got := strings.Join(stacks[0].Functions,
		";"); got != "main.main;runtime.futexwakeup;runtime.futex" || stacks[0].Value != .01 {
		t.Errorf("the first is %s, %v s", got, stacks[0].Value)
	}
	if stacks[1].Value != 1.2 {
		t.Errorf("the second took %v s", stacks[1].Value)
	}
	graph := plot.Flame("a & b", "", stacks)
	most := "<title>path/to/pkg.(*T[go.shape.*uint8]).Read (inline): 99.2 %</title>"
	if !strings.Contains(graph, most) || !strings.Contains(graph, "a &amp; b") {
		t.Error("the graph lacks the function that takes most")
	}
	if _, err := parseTraces([]byte("File: penstock\n")); err == nil {
		t.Error("no samples are no error")
	}
}

func TestShares(t *testing.T) {
	all := shares([]plot.Stack{
		{Value: 4, Functions: []string{
			"runtime.goexit", "github.com/penstock-io/penstock/engine/kit/lines.(*Filler).look",
			"os.(*File).Read",
			"internal/poll.(*FD).Read.func1 (inline)", "internal/runtime/syscall/linux.Syscall6",
		}},
		{Value: 3, Functions: []string{
			"github.com/penstock-io/penstock/engine/internal/pipeline.(*route).read", "bytes.Count",
			"countbody"}},
		{Value: 2, Functions: []string{"runtime.gcBgMarkWorker", "runtime.scanobject"}},
		{Value: 1, Functions: []string{"runtime.mcall", "runtime.findRunnable", "runtime.futex"}},
	})
	want := []result.Share{
		{Of: "kernel: read", Share: .4}, {Of: "engine/internal/pipeline", Share: .3},
		{Of: "garbage collection", Share: .2},
		{Of: "kernel: waking and waiting", Share: .1},
	}
	if !slices.Equal(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
}

func TestChangedLines(t *testing.T) {
	got, err := changed([]byte(`{"id":"~1~","level":"info","n":778.4350,"list":[1, ` +
		`2],"o":{"b":1,"a":2}}`))
	want := `{"id":"~1~","n":778.4350,"list":[1, 2],"o":{"b":1,"a":2},"dc":"eu-1"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestChoose(t *testing.T) {
	all, err := choose("w4_*,w1")
	if err != nil || len(all) != 6 || all[5].name != "w1" {
		t.Errorf("%d workloads, %v", len(all), err)
	}
	if _, err := choose("w99"); err == nil {
		t.Error("a workload that is none was chosen")
	}
}
