package endtoend

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scale holds the sizes and bounds of the tests with many files.
type scale struct {
	files  int // of 10 lines
	larger int // of 5 kB
	log    int // bytes of one large file
	pairs  int
	timed  bool // check the bounds of times; otherwise only print them
	// full selects the bounds of docs/files.md. If it is not set, the bounds are those for smaller
	// runs, for which the time and the memory of an empty run are subtracted.
	full bool
}

// filesScale returns a small scale for go test, and larger ones for `make files-short` and `make
// files`.
func filesScale() scale {
	switch os.Getenv("PENSTOCK_FILES") {
	case "full":
		return scale{files: 100_000, larger: 10_000, log: 1 << 30, pairs: 5, timed: true,
			full: true}
	case "short":
		return scale{files: 5_000, larger: 2_000, log: 256 << 20, pairs: 3, timed: true}
	}
	return scale{files: 1_000, larger: 200, pairs: 1}
}

// bounded is a set of measured figures with their bounds.
type bounded struct {
	t      *testing.T
	about  string
	missed []string
}

// most prints a figure and records whether it exceeds its bound. A bound of 0 means none.
func (f *bounded) most(what string, got, bound float64, unit string) {
	f.t.Helper()
	line := fmt.Sprintf("%s: %s: %.2f %s", f.about, what, got, unit)
	if bound > 0 {
		line += fmt.Sprintf(" (at most %.4g)", bound)
	}
	f.t.Log(line)
	if bound > 0 && got > bound {
		f.missed = append(f.missed, line)
	}
}

// bound returns b if times are checked, otherwise 0.
func (s scale) bound(b float64) float64 {
	if s.timed {
		return b
	}
	return 0
}

// manyFiles creates a folder of n files with the given number of lines, last modified an hour ago.
func manyFiles(t *testing.T, dir string, n, lines int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var text strings.Builder
		for k := range lines {
			fmt.Fprintf(&text, "file %d line %d of a log that somebody has written at some "+
				"time or other\n", i, k)
		}
		aged(t, write(t, filepath.Join(dir, fmt.Sprintf("f%06d.log", i)), text.String()))
	}
}

// aged sets the modification time of a file to an hour ago.
func aged(t *testing.T, path string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// catTime returns the time of find and cat over a folder.
func catTime(t *testing.T, dir string) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := exec.Command("find", dir, "-type", "f", "-exec", "cat", "{}", "+").Run(); err != nil {
		t.Fatalf("find and cat over %s: %v", dir, err)
	}
	return time.Since(begun)
}

// timed runs the program to its end and returns its result, its duration, and its maximum memory in
// MiB.
func timed(t *testing.T, config string) (runResult, time.Duration, float64) {
	t.Helper()
	begun := time.Now()
	var most func() float64
	res, err := tryWatched(t, config, func(p *os.Process) { most = watchResident(p.Pid) })
	took := time.Since(begun)
	mib := most()
	if err != nil {
		t.Fatal(err)
	}
	return res, took, mib
}

// emptyRun returns the time and the maximum memory in MiB of a run over a folder without files.
// Most of that memory is pages of the program's file, which depend on the state of the page cache.
func emptyRun(t *testing.T, source string) (time.Duration, float64) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filesConfig(t, dir, "empty", source)
	var took []time.Duration
	var held []float64
	for range 3 {
		_, d, mib := timed(t, config)
		took, held = append(took, d), append(held, mib)
	}
	return median(took), slices.Max(held) // a peak is missed if it comes just before the end
}

func median[T float64 | time.Duration](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

// filesConfig creates the config of a source that reads ./in, with sink drop.
func filesConfig(t *testing.T, dir, name, source string) string {
	t.Helper()
	return write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf(`
state: ./state-%s
pipelines: { many: { source: { %s }, sink: drop } }
`, name, source))
}

// TestManyFiles checks the time and memory that docs/files.md states for two runs: a first pass
// over many small files, and a restart that finds nothing new.
func TestManyFiles(t *testing.T) {
	s := filesScale()
	dir := t.TempDir()
	manyFiles(t, filepath.Join(dir, "in"), s.files, 10)
	for _, source := range []struct{ name, config string }{
		{"spool_dir", "spool_dir: { path: ./in, finished: keep }"},
		{"tail", `tail: { include: ["./in/*.log"] }`},
	} {
		t.Run(source.name, func(t *testing.T) {
			config := filesConfig(t, dir, source.name, source.config)
			undisturbed(t, func(t *testing.T) string {
				f := bounded{t: t, about: fmt.Sprintf("%s, %d files of 10 lines", source.name,
					s.files)}
				f.passes(s, dir, source.name, source.config, config)
				return strings.Join(f.missed, "; ")
			})
		})
	}
}

// passes measures first passes and restarts, each paired with find and cat.
func (f *bounded) passes(s scale, dir, name, source, config string) {
	t := f.t
	state := filepath.Join(dir, "state-"+name)
	start, base := time.Duration(0), 0.0
	if !s.full {
		start, base = emptyRun(t, source)
	}
	var agains, ratios, restarts, held, heldAgain []float64
	for range s.pairs {
		if err := os.RemoveAll(state); err != nil {
			t.Fatal(err)
		}
		cat := catTime(t, filepath.Join(dir, "in"))
		first, took, mib := timed(t, config)
		again, idle, less := timed(t, config)
		if got := first.Pipelines[0].Delivered; got != int64(10*s.files) {
			t.Fatalf("%d records were delivered, want %d", got, 10*s.files)
		}
		if got := again.Pipelines[0].ReadRecords; got != 0 {
			t.Fatalf("%d records were read again, want none", got)
		}
		agains = append(agains, idle.Seconds())
		ratios = append(ratios, (took-start).Seconds()/cat.Seconds())
		restarts = append(restarts, (idle-start).Seconds()/cat.Seconds())
		held, heldAgain = append(held, mib), append(heldAgain, less)
		t.Logf("%s: find and cat %.2f s, first pass %.2f s and %.0f MiB, restart %.2f s "+
			"and %.0f MiB",
			f.about, cat.Seconds(), took.Seconds(), mib, idle.Seconds(), less)
	}
	info, err := os.Stat(filepath.Join(state, "checkpoint.log"))
	if err != nil {
		t.Fatal(err)
	}
	if s.full {
		f.most("first pass", median(ratios), 2.5, "x find and cat")
		f.most("restart with nothing to do", median(restarts), 0.6, "x find and cat")
		f.most("restart with nothing to do", median(agains), 0, "s")
		f.most("resident at the first pass", median(held), 160, "MiB")
		f.most("resident at the restart", median(heldAgain), 160, "MiB")
	} else {
		f.most("first pass, without the program's start", median(ratios), s.bound(5),
			"x find and cat")
		f.most("restart with nothing to do, likewise", median(restarts), s.bound(2),
			"x find and cat")
		f.most("resident at the first pass, likewise", median(held)-base, 32, "MiB")
	}
	f.most("state", float64(info.Size())/(1<<20), 40*float64(s.files)/100_000, "MiB")
}
