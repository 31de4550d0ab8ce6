package deadletter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// TestLetterOfAnotherProgram checks the file of a running route after another program has appended
// letters to it. The next letter must not overwrite them.
func TestLetterOfAnotherProgram(t *testing.T) {
	path := t.TempDir()
	s, err := Open(vfs.OS(), path, Options{Pipeline: "p", Route: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add := func(id string) {
		letter := Letter{ID: id, Record: []byte("record " + id)}
		if err := s.Append(t.Context(), []Letter{letter}); err != nil {
			t.Fatal(err)
		}
	}
	add("a")
	name := filepath.Join(path, FileName("p", "r"))
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.ReplaceAll(string(whole), `"a"`, `"old-letter"`)
	if _, err := f.WriteString(old); err != nil {
		t.Fatal(err)
	}
	f.Close()
	add("b")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	entries := NewEntries(strings.NewReader(string(text)))
	for e, err := entries.Next(); err == nil; e, err = entries.Next() {
		ids = append(ids, e.ID)
	}
	if got := strings.Join(ids, " "); got != "a old-letter b" || entries.Skipped > 0 {
		t.Errorf("letters %q, %d lines skipped; want a, old-letter and b", got, entries.Skipped)
	}
}
