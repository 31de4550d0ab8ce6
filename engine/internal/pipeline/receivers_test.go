package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReceivers checks that a token in the file identifies its receiver. If the file is unusable at
// the start, the start fails. If the file becomes unusable later, the previous receivers stay in
// effect.
func TestReceivers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	now := time.Now()
	write := func(text string) {
		t.Helper()
		now = now.Add(time.Second)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		`{"m": {"token": "short"}}`: "at least 16",
		`{"a":1`:                    "is not an object",
		`{"a": {"token": "0123456789abcdef"}, "b": {"token": "0123456789abcdef"}}`: `"a" and "b"`,
	} {
		write(text)
		_, err := openReceivers(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "0123") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	write(`{"m1": {"token": "0123456789abcdef-1", "hosts": ["M1.example"]}}`)
	r, err := openReceivers(path)
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := r.of("0123456789abcdef-1")
	if !ok || owner.Name != "m1" || len(owner.Hosts) != 1 || owner.Hosts[0] != "m1.example" {
		t.Errorf("owner %+v, %v", owner, ok)
	}
	write(`{"m2": {"token": "0123456789abcdef-2"}, "short": {"token": "short"}}`)
	for token, want := range map[string]string{
		"0123456789abcdef-1": "", "0123456789abcdef-2": "m2", "0123456789abcdef-": "", "short": "", "": "",
	} {
		if owner, ok := r.of(token); owner.Name != want || ok != (want != "") {
			t.Errorf("%q is the token of %+v, %v, want %q", token, owner, ok, want)
		}
	}
}
