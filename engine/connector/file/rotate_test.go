package file_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// inOrder returns the contents of all files in order, and their lengths.
func inOrder(t *testing.T, path string) (text string, lengths []int) {
	t.Helper()
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%d", path, n)
		if _, err := os.Stat(name); err != nil {
			break
		}
		part := read(t, name)
		text, lengths = text+part, append(lengths, len(part))
	}
	last := read(t, path)
	return text + last, append(lengths, len(last))
}

// TestRotate checks that a file exceeds the limit only if it consists of a single large batch.
// Numbers must continue after a restart. A restart from any reported token must give every record
// once.
func TestRotate(t *testing.T) {
	for _, fsync := range []string{"ack", "interval"} {
		t.Run(fsync, func(t *testing.T) {
			dir := t.TempDir()
			o := rawAt(filepath.Join(dir, "run", "out.log"))
			o.Rotate.Bytes, o.Fsync = 4<<10, fsync
			h := connectortest.NewHost(t)
			s, lane := open(t, h, o, "")
			w := writer{lane: lane}
			places := []string{s.StartToken()}
			var whole strings.Builder
			ends := []int{0}
			for n := range 20 {
				lines := strings.Repeat(fmt.Sprintf("line %d\n", n), 150)
				if n == 7 {
					lines = strings.Repeat(lines, 10)
				}
				place, err := w.deliver(text(lines))
				if err != nil {
					t.Fatal(err)
				}
				whole.WriteString(lines)
				places, ends = append(places, place), append(ends, whole.Len())
			}
			_, _ = h.Stop(), s.Close()
			got, lengths := inOrder(t, o.Path)
			if got != whole.String() {
				t.Fatalf("the files hold %d bytes, want %d", len(got), whole.Len())
			}
			over := slices.DeleteFunc(slices.Clone(lengths), func(n int) bool { return n <= 4<<10 })
			if len(lengths) < 8 || len(over) != 1 {
				t.Errorf("files of %v bytes: want several, and one of more than 4 KiB", lengths)
			}
			for i := len(places) - 1; i >= 0; i-- {
				h := connectortest.NewHost(t)
				s, _ := open(t, h, o, places[i])
				if got, _ := inOrder(t, o.Path); got != whole.String()[:ends[i]] {
					t.Fatalf("from the place after %d batches the files hold %d bytes, want %d", i,
						len(got), ends[i])
				}
				_, _ = h.Stop(), s.Close()
			}
			if _, err := os.Stat(o.Path + ".1"); !os.IsNotExist(err) {
				t.Errorf("after the first place was gone back to there is still a "+
					"numbered file: %v", err)
			}
		})
	}
}

// TestRotateLeavesOthersAlone checks that files with similar names are neither counted nor removed.
func TestRotateLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	o := rawAt(filepath.Join(dir, "out.log"))
	o.Rotate.Bytes = 4 << 10
	foreign := []string{"out.log.01", "out.log.gz", "out.log.1.gz", "out.log.-1", "xout.log.5",
		"out.log.99999999999999999999"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "out.log.41"), []byte("an earlier run's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := connectortest.NewHost(t)
	s, lane := open(t, h, o, "")
	w, start := writer{lane: lane}, s.StartToken()
	for range 3 {
		if _, err := w.deliver(lines(3, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = h.Stop(), s.Close()
	for _, name := range []string{"out.log.42", "out.log.43"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	h = connectortest.NewHost(t)
	s, _ = open(t, h, o, start)
	_, _ = h.Stop(), s.Close()
	left, err := fs.Glob(os.DirFS(dir), "*")
	if err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(foreign), "out.log", "out.log.41", ".out.log.lock")
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

func TestRotateOptions(t *testing.T) {
	o := rawAt("out.log")
	o.Rotate.Bytes = 100
	if err := o.Validate(); err == nil ||
		err.Error() != "rotate.bytes: is 100B, want 4KiB or more, or 0 for one file" {
		t.Errorf("%v", err)
	}
}
