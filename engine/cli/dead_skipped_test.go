package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeadSkippedLines checks that the lines which a list or replay skips are reported.
func TestDeadSkippedLines(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "penstock.yaml")
	letters := filepath.Join(dir, "state", "dead", "p.main.ndjson")
	text := "state: " + filepath.Join(dir, "state") + "\npipelines: { p: { source: { tail: " +
		"{ include: [" + filepath.Join(dir, "*.log") + "] } }, sink: { drop: } } }\n"
	const lines = "{\"version\":9,\"id\":\"a@1\",\"record\":\"x\"}\n" +
		"{\"version\":1,\"id\":\"a@2\",\"record\":\"y\"}\n"
	err := os.MkdirAll(filepath.Dir(letters), 0o700)
	if err == nil {
		err = os.WriteFile(config, []byte(text), 0o600)
	}
	if err == nil {
		err = os.WriteFile(letters, []byte(lines), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"list", "replay"} {
		got := realProgram().try(t, "dead", command, config)
		const want = "1 lines of the files are not dead letters and were skipped"
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("dead %s: exit code %d, want 0 with %q:\n%s%s", command, got.code, want,
				got.out, got.stderr)
		}
	}
}
