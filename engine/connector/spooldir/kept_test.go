package spooldir_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/spooldir"
)

// TestKeptFileGrows checks a file that grows again and again after its progress was saved as
// finished, in two runs. Resume returns only the progress at the start of the run. The source must
// read each line once.
func TestKeptFileGrows(t *testing.T) {
	keep := func(o *spooldir.Options) { o.Finished = "keep" }
	bubble(t, keep, func(t *testing.T, w *fixture) {
		finish := func() {
			w.pump(3 * time.Second)
			marks := slices.Collect(maps.Values(w.store.marks))
			if len(marks) != 1 || !marks[0].Finished {
				t.Fatalf("the progress is %+v, want one finished file", marks)
			}
			if err := w.reader.Commit(t.Context(), marks); err != nil {
				t.Fatal(err)
			}
			w.pump(3 * time.Second)
		}
		path := put(t, w.dir, "a.log", "one\n")
		w.open(false)
		finish()
		appendTo(t, path, "two\n")
		finish()
		w.close()
		w.open(false)
		for _, line := range []string{"three\n", "four\n", "five\n"} {
			finish()
			appendTo(t, path, line)
		}
		finish()
		w.close()
		w.want("a.log: one\ntwo\nthree\nfour\nfive\n")
	})
}
