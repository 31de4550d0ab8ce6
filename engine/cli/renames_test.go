package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRenames checks that `penstock validate` points out every former name in docs/renames.md. The
// page must have every former name that a config may use.
func TestRenames(t *testing.T) {
	const (
		source = "source: {spool_dir: {path: in}}, "
		loki   = "loki: {labels: {a: b}}"
		index  = "elasticsearch: {index: a}"
		table  = "clickhouse: {table: a}"
	)
	http := func(body, options string) string {
		return source + "sink: {http: {endpoints: ['http://a'], body: " + body + ", " + options + "}}"
	}
	uses := map[string]string{
		"settle":            "source: {spool_dir: {path: in, settle: 2s}}, sink: drop",
		"retry.policy":      source + "sink: drop, retry: {policy: fixed delay=1s}",
		"flow.limit":        source + "sink: drop, flow: {limit: {rate: 1/s}}",
		"flow.worker_limit": source + "sink: drop, flow: {worker_limit: {rate: 1/s}}",
		"http: {body: elasticsearch_bulk, elasticsearch: {...}}": http("elasticsearch_bulk", index),
		"http: {body: loki, loki: {...}}":                        http("loki", loki),
		"http: {body: clickhouse, clickhouse: {...}}":            http("clickhouse", table),
	}
	rows := regexp.MustCompile("(?m)^\\| `(.+?)` \\| `.+` \\| config").FindAllStringSubmatch(
		page(t, "renames.md"), -1)
	documented := map[string]bool{}
	for _, row := range rows {
		former := row[1]
		documented[former] = true
		if uses[former] == "" {
			t.Errorf("docs/renames.md: no config of this test uses %s", former)
			continue
		}
		file := filepath.Join(t.TempDir(), "penstock.yaml")
		text := "pipelines: {a: {" + uses[former] + "}}"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := realProgram().try(t, "validate", file)
		if got.code != exitOK || !strings.Contains(got.out, "the former name of") {
			t.Errorf("%s: code %d, want a notice of the former name: %s", former, got.code,
				got.out)
		}
	}
	for former := range uses {
		if !documented[former] {
			t.Errorf("docs/renames.md has no row for %s", former)
		}
	}
}
