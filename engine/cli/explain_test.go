package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// told returns summaries that together contain every gate.
func told() []*explain.Summary {
	worker := explain.Worker{Worker: status.Worker{
		Name: "http://a:8080/in", State: "NORMAL", Window: 6, InFlight: 6,
		RoundTrip: 0.052, Base: 0.041,
		Timeout: 0.2, Delivered: 1234, TimedOut: 2, Late: 1,
		Reason: "about 1.2 batches queued (grows below 2.0, shrinks above 3.0; mean round trip " +
			"52.123456ms, drained 41ms): window 5 to 6",
	}}
	var out []*explain.Summary
	for i, gate := range explain.Gates {
		w := worker
		w.Gate = gate
		s := &explain.Summary{
			Route: explain.Route{Name: "access/main", Window: window.Queue{}, Replay: 32 << 20, Waiting: 3},
			About: trace.About{Route: "access/main", Started: time.Date(2026, 11, 21, 14, 3, 5, 0, time.UTC)},
			At:    12400 * time.Millisecond, Names: []string{w.Name},
		}
		switch gate {
		case "breaker":
			w.State, w.Reason, w.Failed, w.Opens = "OPEN",
				"failures in a row: paused between attempts", 3, 0.7
			s.LastFault = "worker http://a:8080/in: 500 Internal Server Error"
			s.Shares = map[string]time.Duration{"window": 11 * time.Second,
				"breaker": 1300 * time.Millisecond, "none": time.Millisecond}
			s.Steps = []explain.Step{
				{At: 0, State: "UNKNOWN", Window: 1, Reason: "no round has ended yet"},
				{At: 4 * time.Second, State: "NORMAL", Window: 6, Reason: worker.Reason, Probes: 1},
				{At: 11100 * time.Millisecond, State: "OPEN", Window: 4, Reason: w.Reason, Probes: 2},
			}
		case "throttle":
			w.State, w.Opens = "THROTTLED", 3
		case "rate":
			w.Rate = 87.5
		case "window":
			s.Window = []window.Algorithm{window.Linear{}, window.Fixed{Size: 6}}[i%2]
		case "none":
			w.InFlight, s.Over, s.Ended = 2, true, "its bound of 268435456 bytes is reached"
		}
		s.Workers = []explain.Worker{w}
		out = append(out, s)
	}
	return out
}

// TestExplainText compares every kind of explanation with a golden file.
func TestExplainText(t *testing.T) {
	path := testdata(t, "explain.golden")
	var b strings.Builder
	all := explain.Route{Name: "access/main", Replay: 1 << 20, LastFault: "worker b: 500"}
	for _, s := range told() {
		if err := explainOneText(&b, s); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, strings.Repeat("=", 40))
		w := s.Workers[0]
		w.Name = fmt.Sprintf("http://%s:8080/in", w.Gate)
		all.Workers = append(all.Workers, w)
	}
	if err := explainAllText(&b, &all, "now, 12.4 s after its start"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, strings.Repeat("=", 40))
	first := told()[0]
	if err := writeResult(&b, oneJSON(first, &first.Workers[0])); err != nil {
		t.Fatal(err)
	}
	if err := explainAllJSON(&b, &first.Route, first.At); err != nil {
		t.Fatal(err)
	}
	golden(t, path, b.String())
}

// simulated returns the trace of a simulated run against two workers.
func simulated(t *testing.T) string {
	t.Helper()
	s, err := scenario.Parse("trickle", []byte("duration: 5s\nload: saturated\nservice: "+
		"deterministic\nnetwork: { rtt: 10ms }\n"+
		"workers: [ { rate: 100 }, { rate: 20 } ]\n"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := flowsim.Find("queue", "")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	about := trace.About{Program: pipeline.Version(), Arch: runtime.GOARCH}
	w, err := trace.NewWriter(&text, spec.Config(s, 1), about)
	if err != nil {
		t.Fatal(err)
	}
	o := flowsim.Options{Seed: 1, Trace: func(e *control.Event, do []control.Command) { w.Event(e, do) }}
	if _, err := flowsim.Run(s, spec, o); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "trace.ndjson")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExplainTrace explains a trace written by the simulator.
func TestExplainTrace(t *testing.T) {
	record := simulated(t)
	p := newProgram(newFake(), nil)
	all := p.try(t, "explain", record)
	for _, part := range []string{"where the trace ends", "worker",
		"the limit of the route: the workers: the windows of 2 of 2"} {
		if all.code != exitOK || !strings.Contains(all.out, part) {
			t.Errorf("explain: exit code %d, no %q in\n%s%s", all.code, part, all.out, all.stderr)
		}
	}
	one := p.try(t, "explain", record, "--worker", "1", "--at", "2.5s")
	for _, part := range []string{
		"worker 1 of", "2.5 s after its start", "(queue)", "gate        window: ",
		"changes that would open the gate", "recent states",
	} {
		if one.code != exitOK || !strings.Contains(one.out, part) {
			t.Errorf("explain --worker: exit code %d, no %q in\n%s%s", one.code, part, one.out, one.stderr)
		}
	}
	asJSON := p.try(t, "explain", record, "--json")
	rows := strings.Split(strings.TrimSpace(asJSON.out), "\n")
	var last explainedRoute
	if err := json.Unmarshal([]byte(rows[len(rows)-1]), &last); err != nil || len(rows) != 3 ||
		last.Workers != 2 || !last.OK {
		t.Errorf("explain --json: %v\n%s", err, asJSON.out)
	}
	changed, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(changed), `"arch":"`, `"arch":"s390x-`, 1)
	if err := os.WriteFile(record, []byte(strings.Replace(text, `"number":1`, `"number":9`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.try(t, "explain", record); got.code != exitUnfinished ||
		!strings.Contains(got.stderr, "it was written on s390x-") {
		t.Errorf("explain of another machine's trace: exit code %d, %q", got.code, got.stderr)
	}
}

func TestExplainRefusals(t *testing.T) {
	inFolder(t)
	head := `{"penstock_trace":1,"seed":1,"started":"2026-11-21T14:03:05Z"}` + "\n"
	for name, text := range map[string]string{
		"two.ndjson": head + `{"now":0,"event":"lane_up","name":"http://a:1/in"}` + "\n" +
			`{"now":0,"event":"lane_up","lane":1,"name":"http://b:1/in"}` + "\n" +
			`{"now":5000000000,"event":"lane_down","lane":1}` + "\n",
		"old.ndjson": `{"penstock_trace":1,"seed":1}` + "\n", "other.ndjson": "{}\n",
		"torn.ndjson": head + "x\n" + "y\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile("penstock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, "conf/penstock.yaml", string(config))
	for _, c := range []struct{ line, want string }{
		{"explain", "needs a trace, a config or an address"},
		{"explain two.ndjson --worker c",
			`there is no worker "c" in two.ndjson; the workers are http://a:1/in, http://b:1/in`},
		{"explain two.ndjson --worker http",
			`"http" matches several workers: http://a:1/in, http://b:1/in`},
		{"explain two.ndjson --worker http://a:2/in", `did you mean "http://a:1/in"?`},
		{"explain two.ndjson --worker b:1",
			"worker http://b:1/in did not exist 5 s after the start"},
		{"explain two.ndjson --at noon", `"noon" is neither a time after the start`},
		{"explain two.ndjson --at -3s", "the trace begins at 0s"},
		{"explain two.ndjson --at 2026-11-21T14:03:04Z", "--at is before the trace begins"},
		{"explain old.ndjson --at 2026-11-21T14:03:04Z", "the trace has no start time"},
		{"explain old.ndjson --worker a", "has no workers yet"},
		{"explain other.ndjson", "other.ndjson is not a trace"},
		{"explain missing.ndjson", "there is no file missing.ndjson"},
		{"explain penstock.yaml --at 3s", "--at is a moment of a trace"},
		{"explain penstock.yaml --timeout 0s", "--timeout is 0s"},
		{"explain torn.ndjson", "torn.ndjson: line 2"},
		{"explain penstock.yaml", "has no `admin:`"},
		{"explain conf", "conf has no `admin:`"},
	} {
		got := newProgram(newFake(), nil).try(t, strings.Fields(c.line)...)
		if got.code == exitOK || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: exit code %d, %q; want %q", c.line, got.code, got.stderr, c.want)
		}
	}
}

// TestExplainProcess explains a running process.
func TestExplainProcess(t *testing.T) {
	status := func() status.Status {
		s := status.Status{Version: 1, Seconds: 12.4, Routes: []status.Route{{
			Pipeline: "access", Name: "main", Health: "running",
			Window: "queue", WindowOptions: json.RawMessage(`{"Max":4}`),
			ReplayBoundBytes: 32 << 20, LastFault: "worker b: 500",
			Workers: []status.Worker{
				{Name: "http://a:1/in", State: "NORMAL", Gate: "window", Window: 4, InFlight: 4, Delivered: 9},
				{Name: "http://b:1/in", State: "OPEN", Gate: "breaker", Window: 1,
					Reason: "failures in a row: paused between attempts"},
				{Name: "http://c:1/in", State: "NORMAL", Gate: "rate", Rate: 87.5},
			},
		}}}
		s.Judge()
		return s
	}
	server, err := admin.Listen(admin.Options{Address: "127.0.0.1:0", Status: status, Live: status,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	p := newProgram(newFake(), nil)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "route access/main, now, 12.4 s after its start"},
		{[]string{"--worker", "b:1"}, "the route's latest failure: worker b: 500"},
		{[]string{"--worker", "a:1", "--json"}, `"window_algorithm":"queue"`},
		{[]string{"--worker", "a:1"}, "it is at its maximum: raise `flow.max`"},
		{[]string{"--worker", "c:1"}, "at most 87.5 batches a second are sent"},
		{[]string{"--json"},
			`"held_by":"the workers: the windows of 1 of 3 are full, 1 of 3 reached the gate ` +
				`rate, and 1 is paused"`},
	} {
		got := p.try(t, append([]string{"explain", server.Addr()}, c.args...)...)
		if got.code != exitOK || !strings.Contains(got.out, c.want) {
			t.Errorf("explain %v: exit code %d, no %q in\n%s%s", c.args, got.code, c.want, got.out, got.stderr)
		}
	}
}
