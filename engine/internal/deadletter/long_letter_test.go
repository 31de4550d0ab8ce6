package deadletter_test

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestLongLastLetter opens a file with a last letter of 72 MiB, which is more than Open reads at
// first. Open must still recognize the letter: it must not be moved to another file, and must not
// be written again. (The record is 12 MiB of NUL bytes, which take six bytes each in JSON.)
func TestLongLastLetter(t *testing.T) {
	files := vfstest.New()
	s := open(t, files, 0)
	long := letter(2)
	long.Record = make([]byte, 12<<20)
	for _, l := range []deadletter.Letter{letter(1), long} {
		if err := s.Append(t.Context(), []deadletter.Letter{l}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, files, 0)
	if s.SetAside() != "" {
		t.Errorf("a part of the letter was moved to %s", s.SetAside())
	}
	if err := s.Append(t.Context(), []deadletter.Letter{letter(3), long}); err != nil {
		t.Fatal(err)
	}
	entries := deadletter.NewEntries(strings.NewReader(content(t, files, path)))
	var sizes []int
	for e, err := entries.Next(); err == nil; e, err = entries.Next() {
		sizes = append(sizes, len(e.Text()))
	}
	if len(sizes) != 3 || sizes[1] != len(long.Record) || entries.Skipped > 0 {
		t.Errorf("the file has letters of %v bytes, and %d other lines; want 3 letters", sizes,
			entries.Skipped)
	}
}
