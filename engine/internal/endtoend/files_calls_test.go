package endtoend

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fileCalls are the system calls that concern one file. Calls that list a directory are printed
// separately, because one such call returns hundreds of names.
var fileCalls = []string{
	"open", "openat", "openat2", "stat", "fstat", "lstat", "newfstatat", "statx", "fcntl",
	"epoll_ctl", "read", "readv", "pread64",
	"preadv", "close", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat",
	"readlinkat",
}

// maxFileCalls bounds the system calls for each small file.
const maxFileCalls = 8

// TestFileCalls uses strace to check that the program makes at most maxFileCalls system calls for
// each of many small files. It subtracts the calls of a run over fewer files, so that the start and
// the end of the program do not count.
func TestFileCalls(t *testing.T) {
	s := filesScale()
	if !s.timed {
		t.Skip("skipped: strace slows the program down; run `make files-short` or `make files`")
	}
	if err := exec.Command("strace", "-f", "-c", "-o", filepath.Join(t.TempDir(), "true.txt"),
		"true").Run(); err != nil {
		t.Skipf("skipped: strace cannot count system calls here: %v", err)
	}
	few, many := 500, 2_000
	if s.full {
		few, many = 1_000, 10_000
	}
	for _, source := range []struct{ name, config string }{
		{"spool_dir, finished: keep", "spool_dir: { path: ./in, finished: keep }"},
		{"spool_dir, finished: rename", "spool_dir: { path: ./in, finished: rename }"},
		{"spool_dir, finished: delete", "spool_dir: { path: ./in, finished: delete }"},
		{"tail", `tail: { include: ["./in/*.log"] }`},
	} {
		t.Run(source.name, func(t *testing.T) {
			about := fmt.Sprintf("%s, %d files of 10 lines", source.name, many)
			// If the source lists the directory before all files are finished, it checks the
			// remaining files again. How often this happens depends on timing, which strace
			// distorts. So the minimum of several runs is used.
			least := math.Inf(1)
			for try := 0; try < 4*tries && least > maxFileCalls; try++ {
				least = min(least, callsEach(t, about, source.config, few, many))
			}
			f := bounded{t: t, about: about}
			f.most("system calls for each file", least, maxFileCalls, "")
			if len(f.missed) > 0 {
				t.Error(strings.Join(f.missed, "; "))
			}
		})
	}
}

// callsEach returns the system calls per file. They are rounded to a tenth, so that calls for
// directories and the state do not count.
func callsEach(t *testing.T, about, source string, few, many int) float64 {
	t.Helper()
	less, more := systemCalls(t, source, few), systemCalls(t, source, many)
	each := func(call string) float64 { return float64(more[call]-less[call]) / float64(many-few) }
	all, parts := 0.0, []string{}
	for _, call := range fileCalls {
		if n := each(call); n >= 0.01 || n <= -0.01 {
			parts = append(parts, fmt.Sprintf("%s %.2f", call, n))
		}
		all += each(call)
	}
	t.Logf("%s: %s; getdents64 %.3f", about, strings.Join(parts, ", "), each("getdents64"))
	return math.Round(10*all) / 10
}

// systemCalls runs the program over n files under strace and returns the number of calls by name.
func systemCalls(t *testing.T, source string, n int) map[string]int {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manyFiles(t, filepath.Join(dir, "in"), n, 10)
	counts := filepath.Join(dir, "strace.txt")
	config := filesConfig(t, dir, "calls", source)
	out, err := exec.Command("strace", "-f", "-c", "-o", counts, bin, "run", "--once",
		config).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	calls, err := parseStrace(read(t, counts))
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// parseStrace parses the table written by strace -c: shares, seconds, usecs/call, calls, optional
// errors, and names.
func parseStrace(text []byte) (map[string]int, error) {
	calls := make(map[string]int)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		cells := strings.Fields(lines.Text())
		if len(cells) < 5 || cells[len(cells)-1] == "total" || strings.HasPrefix(cells[0], "-") ||
			cells[0] == "%" {
			continue
		}
		n, err := strconv.Atoi(cells[3])
		if err != nil {
			return nil, fmt.Errorf("the table of strace has the line %q: %w", lines.Text(), err)
		}
		calls[cells[len(cells)-1]] = n
	}
	if calls["openat"] == 0 {
		return nil, errors.New("the table of strace has no openat: " +
			strings.Join(slices.Sorted(maps.Keys(calls)), " "))
	}
	return calls, nil
}
