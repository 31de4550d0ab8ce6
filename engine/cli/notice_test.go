package cli

import (
	"os"
	"strings"
	"testing"
)

// TestFormerNamesAreShown checks that a config with former names is valid, and that validate shows
// the present form of each.
func TestFormerNamesAreShown(t *testing.T) {
	t.Chdir(t.TempDir())
	const config = `pipelines:
  a:
    source: {spool_dir: {path: spool}}
    routes:
      search:
        sink: {http: {body: elasticsearch_bulk, endpoints: ["http://h"], elasticsearch: {index: a}}}
      lines: {sink: {http: {body: loki, endpoints: ["http://h"]}}}
      rows: {sink: {http: {body: clickhouse, endpoints: ["http://h"], clickhouse: {table: t}}}}
`
	if err := os.WriteFile("penstock.yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	got := realProgram().try(t, "validate", "penstock.yaml")
	for _, want := range []string{
		":6:29: http.body is elasticsearch_bulk, the former name of the sink elasticsearch; write ",
		":7:35: http.body is loki, the former name of the sink loki; write loki: {endpoints: [...]}",
		":8:34: http.body is clickhouse, the former name of the sink clickhouse; write clickhouse: {",
	} {
		if got.code != exitOK || !strings.Contains(got.out, "\n# penstock.yaml"+want) {
			t.Errorf("validate ends with %d and prints no %q:\n%s", got.code, want, got.out)
		}
	}
	got = realProgram().try(t, "validate", "--json", "penstock.yaml")
	const want = `"notices":[{"file":"penstock.yaml","line":6,"column":29,"message":"http.body is `
	if got.code != exitOK || !strings.Contains(got.out, want) {
		t.Errorf("validate --json ends with %d and prints no %s:\n%s", got.code, want, got.out)
	}
	plan := realProgram().try(t, "validate", "penstock.yaml").out
	if err := os.WriteFile("plan.yaml", []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := realProgram().try(t, "validate", "plan.yaml"); again.code != exitOK {
		t.Errorf("the plan is no config: %+v", again)
	}
}
