package reread

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	f := &File[map[string][]string]{Path: path, Shape: "an object of lists of texts"}
	if _, err := f.Read(); err == nil {
		t.Error("a missing file was read")
	}
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
	write(`{"m": "secret"}`)
	if _, err := f.Read(); err == nil || strings.Contains(err.Error(), "secret") ||
		!strings.Contains(err.Error(), f.Shape) {
		t.Errorf("a file of another shape: %v", err)
	}
	for _, c := range []struct{ text, want string }{
		{`{"m": ["a"]}`, "a"}, {`{"m": ["b"]}`, "b"}, {`{`, "b"}, {`{"m": ["c", "d"]}`, "c d"},
	} {
		write(c.text)
		got, err := f.Read()
		if err != nil || strings.Join(got["m"], " ") != c.want {
			t.Errorf("%s: %v, %v, want %s", c.text, got, err, c.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Read(); err != nil || len(got["m"]) != 2 {
		t.Errorf("after its removal: %v, %v", got, err)
	}
}
