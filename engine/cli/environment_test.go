package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/status"
)

// TestProxyIsShown checks that validate and status show the proxy in use, without its password.
func TestProxyIsShown(t *testing.T) {
	t.Chdir(t.TempDir())
	text := configOf("sink", "http", `endpoints: ["http://h/in?token=hunter2"], proxy: "http://me:hunter2@p:3128"`)
	if err := os.WriteFile("penstock.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "a/main: http://h/in through proxy http://***@p:3128"
	for _, args := range [][]string{{"validate", "penstock.yaml"}, {"validate", "--json", "penstock.yaml"}} {
		if got := realProgram().try(t, args...); !strings.Contains(got.out, want) ||
			strings.Contains(got.out, "hunter2") {
			t.Errorf("%v: %s%s", args, got.out, got.stderr)
		}
	}
	shown := statusText(
		&status.Status{Routes: []status.Route{{Pipeline: "a", Name: "main", Environment: []string{want}}}})
	if !strings.Contains(shown, want) {
		t.Errorf("status: %s", shown)
	}
}

// TestMissingAuthorities checks that validate reports a missing file of tls.ca.
func TestMissingAuthorities(t *testing.T) {
	t.Chdir(t.TempDir())
	text := configOf("sink", "http", `endpoints: ["https://h/in"], tls: {ca: none.pem}`)
	if err := os.WriteFile("penstock.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := realProgram().try(t, "validate", "penstock.yaml")
	if got.code != exitUsage || !strings.Contains(got.stderr, "http.tls.ca: ") ||
		!strings.Contains(got.stderr, "no such file") {
		t.Errorf("code %d: %s", got.code, got.stderr)
	}
}
