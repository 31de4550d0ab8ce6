package endtoend

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// blockedLine marks lines that the fixture's HTTP receiver does not acknowledge.
const blockedLine = " blocked "

// TestWriteUpgradeFixture writes testdata/upgrade with the program named by PENSTOCK_BEFORE. The
// fixture in the repository was written by commit a477cea.
func TestWriteUpgradeFixture(t *testing.T) {
	bin := os.Getenv("PENSTOCK_BEFORE")
	if bin == "" {
		t.Skip("skipped: PENSTOCK_BEFORE names no program of the version before")
	}
	if err := os.Mkdir(upgradeRoot, 0o755); err != nil {
		t.Fatalf("the directory of the fixture has to be new: %v", err)
	}
	defer os.RemoveAll(upgradeRoot)
	f := &fixture{t: t, ledger: upgradeLedger{Lines: make(map[string][]string),
		Delivered: make(map[string][]int)}}
	f.receiver.lines = make(map[string]map[string]int)
	server := httptest.NewServer(&f.receiver)
	defer server.CloseClientConnections()
	for p := range upgradeRoutes {
		if err := os.Mkdir(filepath.Join(upgradeRoot, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := write(t, filepath.Join(upgradeRoot, "penstock.yaml"),
		upgradeConfig(upgradeRoot, server.URL))
	cmd := exec.Command(bin, "run", config)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	f.delivered()
	f.lag()
	f.settled()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	f.rotated()
	f.keep(bin, config)
	t.Log(log.String())
}

// fixture writes the files that the previous version reads.
type fixture struct {
	t        *testing.T
	ledger   upgradeLedger
	receiver upgradeReceiver
	count    int
}

func (f *fixture) path(parts ...string) string {
	return filepath.Join(append([]string{upgradeRoot}, parts...)...)
}

// lines returns n lines of a pipeline. blocked is the index of a line that the HTTP receiver does
// not acknowledge, or -1.
func (f *fixture) lines(pipeline string, n, blocked int) string {
	var b strings.Builder
	for i := range n {
		f.count++
		mark := " "
		if i == blocked {
			mark = blockedLine
		}
		line := fmt.Sprintf("%08x line %04d of the version before,%sfor %s %s",
			scrambled(1, f.count), f.count, mark, pipeline,
			strings.Repeat(".", 20+f.count%7))
		f.ledger.Lines[pipeline] = append(f.ledger.Lines[pipeline], line)
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (f *fixture) add(pipeline, name string, n, blocked int) {
	f.t.Helper()
	appendText(f.t, f.path(pipeline, name), f.lines(pipeline, n, blocked))
}

// pack compresses a file and removes it.
func (f *fixture) pack(pipeline, from, to string) {
	f.t.Helper()
	text := read(f.t, f.path(pipeline, from))
	f.packed(pipeline, to, string(text))
	if err := os.Remove(f.path(pipeline, from)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) packed(pipeline, name, text string) {
	f.t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		f.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	write(f.t, f.path(pipeline, "."+name), b.String())
	rename(f.t, f.path(pipeline, "."+name), f.path(pipeline, name))
}

// copyTruncate rotates a file as logrotate's copytruncate does.
func (f *fixture) copyTruncate(pipeline, name string) {
	f.t.Helper()
	write(f.t, f.path(pipeline, name+".1"), string(read(f.t, f.path(pipeline, name))))
	if err := os.Truncate(f.path(pipeline, name), 0); err != nil {
		f.t.Fatal(err)
	}
}

// delivered writes files that all routes deliver.
func (f *fixture) delivered() {
	for _, p := range []string{"two", "three"} {
		f.add(p, "a.log", 40, -1)
		f.add(p, "b.log", 30, -1)
		f.add(p, "c.log", 30, -1)
		f.add(p, "f.log", 5, -1)
	}
	for _, p := range []string{"keep", "rename"} {
		f.add(p, "x.log", 30, -1)
	}
	f.settled()
}

// lag writes and rotates files. Meanwhile the route `late` delivers nothing, and the route `post`
// does not deliver some of its batches.
func (f *fixture) lag() {
	f.receiver.mu.Lock()
	f.receiver.hang = func(path string, lines []string) bool {
		return strings.HasSuffix(path, "/late") ||
			slices.ContainsFunc(lines, func(line string) bool {
				return strings.Contains(line, blockedLine)
			})
	}
	f.receiver.mu.Unlock()
	for _, p := range []string{"two", "three"} {
		rename(f.t, f.path(p, "b.log"), f.path(p, "b.log.1"))
		f.add(p, "b.log", 20, -1)
		f.settled()
		f.copyTruncate(p, "c.log")
		f.settled()
		f.add(p, "c.log", 20, -1)
		if err := os.Remove(f.path(p, "f.log")); err != nil {
			f.t.Fatal(err)
		}
		f.add(p, "d.log", 80, 40)
		f.settled()
		f.pack(p, "d.log", "d.log.1.gz")
	}
	f.packed("three", "e.log.1.gz", f.lines("three", 80, 40))
	f.packed("keep", "y.log.gz", f.lines("keep", 80, 40))
	f.add("keep", "z.log", 80, 40)
	f.add("rename", "y.log", 80, 40)
}

// rotated writes and rotates files while no program runs.
func (f *fixture) rotated() {
	for _, p := range []string{"two", "three"} {
		f.add(p, "a.log", 20, -1)
		f.add(p, "b.log", 10, -1)
		f.pack(p, "b.log.1", "b.log.2.gz")
		rename(f.t, f.path(p, "b.log"), f.path(p, "b.log.1"))
		f.add(p, "b.log", 10, -1)
		f.add(p, "c.log", 10, -1)
		rename(f.t, f.path(p, "c.log.1"), f.path(p, "c.log.2"))
		f.copyTruncate(p, "c.log")
		f.add(p, "c.log", 7, -1)
		f.add(p, "g.log", 10, -1)
	}
	f.add("keep", "w.log", 10, -1)
	f.add("rename", "z.log", 10, -1)
}

// settled waits until no receiver has received anything for three seconds.
func (f *fixture) settled() {
	for last, most := time.Now(),
		-1; time.Since(last) < 3*time.Second; soakWait(f.t.Context(), 100*time.Millisecond) {
		n := 0
		f.receiver.mu.Lock()
		for _, lines := range f.receiver.lines {
			n += len(lines)
		}
		f.receiver.mu.Unlock()
		if n > most {
			last, most = time.Now(), n
		}
	}
}

// keep stores the current files as the fixture.
func (f *fixture) keep(bin, config string) {
	t := f.t
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	for path, lines := range f.receiver.lines {
		for i, line := range f.ledger.Lines[filepath.Dir(path)] {
			if n := lines[line]; n > 0 {
				f.ledger.Delivered[path] = append(f.ledger.Delivered[path], i)
			}
			if n := lines[line]; n > 1 {
				t.Errorf("%s: %q was delivered %d times", path, line, n)
			}
		}
		t.Logf("%s: %d of %d lines", path, len(lines), len(f.ledger.Lines[filepath.Dir(path)]))
	}
	if err := os.RemoveAll(upgradeDir); err != nil {
		t.Fatal(err)
	}
	disk := connectortest.FS()
	for p := range upgradeRoutes {
		db := connectortest.OpenSQLite(t, f.path(p+".db"))
		for _, mode := range []string{"PRAGMA wal_checkpoint(TRUNCATE)",
			"PRAGMA journal_mode = DELETE", "VACUUM"} {
			connectortest.Execute(t, db, mode)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(upgradeDir, p+".db"), string(read(t, f.path(p+".db"))))
		dir, err := disk.OpenDir(f.path(p))
		if err != nil {
			t.Fatal(err)
		}
		entries, err := dir.Entries(".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name, ".") {
				continue
			}
			info, err := dir.Stat(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(p, e.Name)
			f.ledger.Files = append(f.ledger.Files, upgradeFile{
				Path: name, Dev: info.Dev, Ino: info.Ino, Birth: info.Birth.UnixNano(),
				ModTime: info.ModTime.UnixNano(),
			})
			write(t, filepath.Join(upgradeDir, "files", name), string(read(t, f.path(name))))
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(f.ledger.Files, func(a,
		b upgradeFile) int {
		return strings.Compare(a.Path, b.Path)
	})
	write(t, filepath.Join(upgradeDir, "state", "checkpoint.log"),
		string(read(t, f.path("state", "checkpoint.log"))))
	text, err := json.Marshal(f.ledger)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(upgradeDir, "ledger.json"), string(text)+"\n")
	out, err := exec.Command(bin, "checkpoint", "show", config).CombinedOutput()
	t.Logf("%s (%v)", out, err)
	entries, err := os.ReadDir(f.path("state"))
	t.Log(entries, err)
}
