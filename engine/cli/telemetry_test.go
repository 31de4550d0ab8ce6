package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestTelemetry pushes the metrics and spans of a finite run. It also checks a run while the
// OpenTelemetry receiver is down: all data must be delivered, and the exit code must be 0.
func TestTelemetry(t *testing.T) {
	t.Chdir(t.TempDir())
	var mu sync.Mutex
	got := map[string]string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] += string(body)
		if err != nil || r.Header.Get("Authorization") != "Bearer hunter2" {
			t.Errorf("%s: %v, authorization %q", r.URL, err, r.Header.Get("Authorization"))
		}
	}))
	defer receiver.Close()
	writeFile(t, "logs/a.log", "one\ntwo\nthree\n")
	configure := func(traces int) {
		writeFile(t, "penstock.yaml", fmt.Sprintf(`telemetry: {otlp: %q, token: hunter2, traces: %d}
pipelines: {p: {source: {tail: {include: [./logs/*]}}, sink: {file: {path: out.log}}}}
`, receiver.URL, traces))
	}
	configure(1)
	if ran := realProgram().try(t, "run", "--once", "penstock.yaml"); ran.code != exitOK {
		t.Fatalf("run: %+v", ran)
	}
	for path, wants := range map[string][]string{
		"/v1/metrics": {"penstock_delivered_records_total", `"asDouble":3`,
			"penstock_telemetry_spans_total"},
		"/v1/traces": {`"name":"batch"`, `"name":"deliver"`, `"links":[`,
			`"stringValue":"p/main"`},
	} {
		for _, want := range wants {
			if !strings.Contains(got[path], want) {
				t.Errorf("%s has no %s:\n%s", path, want, got[path])
			}
		}
	}
	shown := realProgram().try(t, "validate", "penstock.yaml")
	if !strings.Contains(shown.out, "interval: 30s") || strings.Contains(shown.out, "hunter2") {
		t.Errorf("validate: %+v", shown)
	}
	clear(got)
	configure(0)
	writeFile(t, "logs/b.log", "four\n")
	if ran := realProgram().try(t, "run", "--once", "penstock.yaml"); ran.code != exitOK {
		t.Fatalf("run without traces: %+v", ran)
	}
	if len(got) != 1 || got["/v1/metrics"] == "" {
		t.Errorf("without traces there were requests to %d paths", len(got))
	}
	receiver.Close()
	configure(1)
	writeFile(t, "logs/c.log", "five\n")
	ran := realProgram().try(t, "run", "--once", "penstock.yaml")
	if ran.code != exitOK || strings.Count(ran.stderr, "telemetry push failed") != 1 {
		t.Errorf("without a receiver: %+v", ran)
	}
}
