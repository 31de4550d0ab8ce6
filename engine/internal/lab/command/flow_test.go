package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

const trickle = `name: trickle
duration: 5s
load: saturated
service: deterministic
network: { rtt: 10ms }
workers: [ { rate: 100 }, { rate: 20 } ]
expect:
  fixed:4: { goodput: ">= 0.9" }
worst:
  fixed:4+round_robin: { bloat: "<= 0.5" }
`

func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trickle.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSimFlowJSON(t *testing.T) {
	file := scenarioFile(t, trickle)
	got := try(t, "sim", "flow", file, "--seeds", "3", "--seed", "5", "--json")
	if got.code != exitUnfinished ||
		!strings.Contains(got.stderr, "trickle: fixed:4+round_robin: bloat is ") {
		t.Errorf("exit code %d, %q; want 1 and the bound that was missed", got.code, got.stderr)
	}
	text := strings.TrimSuffix(got.out, "\n")
	rows := strings.Split(text, "\n")
	if len(rows) != 8 {
		t.Fatalf("%d lines, want three runs and a summary for each of two algorithms:\n%s",
			len(rows), text)
	}
	for i, row := range rows {
		var m map[string]any
		if err := json.Unmarshal([]byte(row), &m); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		keys := []string{"scenario", "algorithm", "dispatch"}
		if i%4 == 3 {
			keys = append(keys, "seeds", "median", "worst", "expect", "ok")
			first := m["expect"].([]any)[0].(map[string]any)
			for _, k := range []string{"field", "bound", "value", "ok"} {
				if _, ok := first[k]; !ok {
					t.Errorf("line %d: a bound has no %q: %v", i+1, k, first)
				}
			}
			if m["ok"] != (i == 3) {
				t.Errorf("line %d: ok is %v", i+1, m["ok"])
			}
			for _, k := range scenario.FigureNames() {
				if _, ok := m["median"].(map[string]any)[k]; !ok {
					t.Errorf("line %d: the median has no %q", i+1, k)
				}
			}
		} else {
			keys = append(append(keys, "seed"), scenario.FigureNames()...)
			if m["seed"] != float64(5+i%4) {
				t.Errorf("line %d: seed %v, want %d", i+1, m["seed"], 5+i%4)
			}
		}
		for _, k := range keys {
			if _, ok := m[k]; !ok {
				t.Errorf("line %d has no %q", i+1, k)
			}
		}
	}
}

func TestSimFlowFiles(t *testing.T) {
	file := scenarioFile(t, trickle)
	dir := t.TempDir()
	record, plots := filepath.Join(dir, "trace.ndjson"), filepath.Join(dir, "plots")
	got := try(t, "sim", "flow", file, "--algorithm", "linear", "--seeds", "1", "--trace", record,
		"--plot", plots)
	if got.code != exitOK || !strings.Contains(got.out, "trickle  linear  goodput ") {
		t.Fatalf("exit code %d, %q, %q", got.code, got.out, got.stderr)
	}
	svg, err := os.ReadFile(filepath.Join(plots, "trickle-linear.svg"))
	if err != nil || !strings.HasPrefix(string(svg), "<svg ") ||
		!strings.HasSuffix(string(svg), "</svg>\n") {
		t.Errorf("the plot is %.40q, %v", svg, err)
	}
	got = try(t, "sim", "flow", "--replay", record)
	if got.code != exitOK || !strings.Contains(got.out, "all identical") {
		t.Errorf("replay: exit code %d, %q, %q", got.code, got.out, got.stderr)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"seed":1`, `"seed":2`, 1)
	changed = strings.Replace(changed, `"number":1`, `"number":9`, 1)
	if err := os.WriteFile(record, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if got = try(t, "sim", "flow", "--replay", record); got.code != exitUnfinished ||
		!strings.Contains(got.stderr, "but the trace has") {
		t.Errorf("replay of a changed trace: exit code %d, %q", got.code, got.stderr)
	}
}

func TestSimFlowRefusals(t *testing.T) {
	file := scenarioFile(t, trickle)
	wrong := scenarioFile(t, trickle+"speed: 3\n")
	unknown := scenarioFile(t, trickle+"  tidal: { bloat: \"<= 9\" }\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "needs scenario files"},
		{[]string{wrong}, "trickle.yaml:11:1: scenario has no option \"speed\""},
		{[]string{unknown}, `trickle.yaml:11:3: there is no algorithm "tidal"; ` +
			`the algorithms are linear`},
		{[]string{file, "--algorithm", "tidal"},
			`there is no algorithm "tidal"; the algorithms are linear`},
		{[]string{file, "--dispatch", "darts", "--algorithm", "linear"},
			`there is no dispatch "darts"`},
		{[]string{file, "--seeds", "0"}, "--seeds is 0"},
		{[]string{file, "--trace", "x"}, "--trace records one run"},
		{[]string{file, "--into", "x"}, "--into needs --table or --ablate"},
		{[]string{file, "--table", "--json"}, "--table prints tables only"},
		{[]string{wrong, "--table"}, "scenario has no option \"speed\""},
		{[]string{file, "--table", "--algorithm", "fixed:4", "--seeds", "1", "--into", file},
			"has no line"},
		{[]string{file, "--replay", "x"}, "--replay takes only the trace"},
	} {
		got := try(t, append([]string{"sim", "flow"}, c.args...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, c.want) {
			t.Errorf("sim flow %q: exit code %d, %q; want 2 and %q", c.args, got.code,
				got.stderr, c.want)
		}
	}
}

// TestSimFlowTable checks that the tables are written into a page, and that the text around the
// tables stays.
func TestSimFlowTable(t *testing.T) {
	file := scenarioFile(t, trickle)
	got := try(t, "sim", "flow", "--table", "--seeds", "1", "--algorithm", "fixed:4", "--algorithm",
		"queue", file)
	for _, want := range []string{"### Endless backlog", "| scenario | `fixed:4` | `queue` |",
		"| trickle | ",
		"The files hold 2 bounds, for the algorithms that they name; " +
			"with these seeds 1 hold.\n\n- trickle, `fixed:4+round_robin`: worst"} {
		if got.code != exitOK || !strings.Contains(got.out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", got.code, want, got.out, got.stderr)
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	before, after := "# Page\n\n<!-- tables: make docs-flow -->\n",
		"<!-- end of tables -->\n\nThe end.\n"
	write := func() outcome {
		return try(t, "sim", "flow", "--table", "--seeds", "1", "--algorithm", "queue", "--into",
			page, file)
	}
	if got := write(); got.code == exitOK {
		t.Error("a page that is not there was written")
	}
	if err := os.WriteFile(page, []byte(before+"stale\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it replaces its own output
		if got := write(); got.code != exitOK {
			t.Fatal(got.stderr)
		}
		text, err := os.ReadFile(page)
		if err != nil || !strings.HasPrefix(string(text), before) ||
			!strings.HasSuffix(string(text), after) ||
			strings.Contains(string(text), "stale") ||
			strings.Count(string(text), "| trickle |") != 1 {
			t.Errorf("the page is now\n%s", text)
		}
	}
}
