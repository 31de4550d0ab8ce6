package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRenamedFiles checks the speed of spool_dir with `finished: rename` on many files of 5 kB. The
// time of a run must be at most a small multiple of the time that find and cat take to read the
// files.
func TestRenamedFiles(t *testing.T) {
	s := filesScale()
	dir := t.TempDir()
	in, n := filepath.Join(dir, "in"), s.larger
	manyFiles(t, in, n, 67)
	const source = "spool_dir: { path: ./in, finished: rename }"
	config := filesConfig(t, dir, "rename", source)
	undisturbed(t, func(t *testing.T) string {
		f := bounded{t: t, about: fmt.Sprintf("spool_dir, %d files of 5 kB, finished: rename", n)}
		start := time.Duration(0)
		if !s.full {
			start, _ = emptyRun(t, source)
		}
		var ratios []float64
		for range s.pairs {
			cat := catTime(t, in)
			res, took, _ := timed(t, config)
			if got := res.Pipelines[0].Delivered; got != int64(67*n) {
				t.Fatalf("%d records were delivered, want %d", got, 67*n)
			}
			renameBack(t, in, n)
			if err := os.RemoveAll(filepath.Join(dir, "state-rename")); err != nil {
				t.Fatal(err)
			}
			ratios = append(ratios, (took-start).Seconds()/cat.Seconds())
			t.Logf("%s: find and cat %.2f s, all read and renamed %.2f s", f.about, cat.Seconds(),
				took.Seconds())
		}
		if s.full {
			f.most("all read and renamed", median(ratios), 4, "x find and cat")
		} else {
			f.most("all read and renamed, without the program's start", median(ratios), s.bound(6),
				"x find and cat")
		}
		return strings.Join(f.missed, "; ")
	})
}

// renameBack removes the suffix of n finished files. It fails if one was not renamed.
func renameBack(t *testing.T, dir string, n int) {
	t.Helper()
	done, err := filepath.Glob(filepath.Join(dir, "*.done"))
	if err != nil || len(done) != n {
		t.Fatalf("%d files were renamed of %d (%v)", len(done), n, err)
	}
	for _, name := range done {
		if err := os.Rename(name, strings.TrimSuffix(name, ".done")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSourcesEven checks that one large file is read at the same speed by tail and by spool_dir.
func TestSourcesEven(t *testing.T) {
	s := filesScale()
	if !s.timed {
		t.Skip("skipped: it measures times alone; run `make files-short` or `make files`")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "in", "access.log")
	records := generated(t, file, s.log)
	aged(t, file)
	spool := filesConfig(t, dir, "spool", "spool_dir: { path: ./in, finished: keep }")
	tail := filesConfig(t, dir, "tail", `tail: { include: ["./in/*.log"] }`)
	one := func(t *testing.T, config, state string) time.Duration {
		if err := os.RemoveAll(filepath.Join(dir, state)); err != nil {
			t.Fatal(err)
		}
		res, took, _ := timed(t, config)
		if got := res.Pipelines[0].Delivered; got != records {
			t.Fatalf("%d records were delivered, want %d", got, records)
		}
		return took
	}
	undisturbed(t, func(t *testing.T) string {
		f := bounded{t: t, about: fmt.Sprintf("one file of %d MiB", s.log>>20)}
		one(t, spool, "state-spool") // a warm-up
		var ratios []float64
		for i := range 2*s.pairs + 1 {
			var a, b time.Duration
			if i%2 == 0 { // the second run may profit from caches
				a, b = one(t, spool, "state-spool"), one(t, tail, "state-tail")
			} else {
				b, a = one(t, tail, "state-tail"), one(t, spool, "state-spool")
			}
			ratio := b.Seconds() / a.Seconds()
			ratios = append(ratios, ratio)
			t.Logf("%s: spool_dir %.3f s, tail %.3f s: %.3f", f.about, a.Seconds(),
				b.Seconds(), ratio)
		}
		m := median(ratios)
		within := 10.0
		if !s.full {
			within = 30 // so short a run is imprecise
		}
		f.most("difference of tail and spool_dir", 100*max(m-1, 1/m-1), within, "%")
		return strings.Join(f.missed, "; ")
	})
}
