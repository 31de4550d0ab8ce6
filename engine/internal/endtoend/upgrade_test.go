package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// upgradeDir contains the data of the previous version when it was killed: its state, the tables of
// its SQL routes, the files it was reading, and the records of its HTTP receiver. See
// upgrade_fixture_test.go.
const upgradeDir = "testdata/upgrade"

// upgradeRoot is the directory of the files in the fixture's state.
const upgradeRoot = "/var/tmp/penstock-upgrade"

// upgradeRoutes lists the routes of each pipeline besides table.
var upgradeRoutes = map[string][]string{"two": {"post"}, "three": {"post", "late"},
	"keep": {"post"}, "rename": {"post"}}

// upgradeLedger is the data of the fixture that is not in its state, tables or files.
type upgradeLedger struct {
	Lines map[string][]string // by pipeline: all lines written
	// Delivered has the lines that the HTTP receiver had got, and that the state records as
	// delivered. The keys are "pipeline/route", and the values are indexes in Lines.
	Delivered map[string][]int
	Files     []upgradeFile
}

// upgradeFile is a file as seen by the previous version. Times are in nanoseconds since 1970.
type upgradeFile struct {
	Path           string
	Dev, Ino       uint64
	Birth, ModTime int64
}

// upgradeConfig returns the config of the fixture, with state and tables in work.
func upgradeConfig(work, url string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "state: %s\npipelines:\n", filepath.Join(work, "state"))
	tail := "gone_wait: 1s, copy_wait: 1s, poll_max: 100ms"
	spool := "settle: 300ms, poll_max: 100ms"
	for _, p := range []struct{ name, source string }{
		{"two", fmt.Sprintf(`tail: { include: ["%s/two/*.log*"], %s }`, upgradeRoot, tail)},
		{"three", fmt.Sprintf(`tail: { include: ["%s/three/*.log*"], exclude: [".*"], %s }`,
			upgradeRoot, tail)},
		{"keep", fmt.Sprintf(`spool_dir: { path: %s/keep, finished: keep, %s }`, upgradeRoot,
			spool)},
		{"rename", fmt.Sprintf(`spool_dir: { path: %s/rename, exclude: ["*.done"], %s }`,
			upgradeRoot, spool)},
	} {
		fmt.Fprintf(&b, "  %s:\n    source: { %s }\n    routes:\n", p.name, p.source)
		fmt.Fprintf(&b, "      table:\n        processors: [{ set: { id: meta.id } }]\n"+
			"        sink: { sqlite: { path: %s, table: lines } }\n        batch: { bytes: "+
			"1KiB }\n        checkpoint: { sync: 50ms }\n",
			filepath.Join(work, p.name+".db"))
		for _, route := range upgradeRoutes[p.name] {
			fmt.Fprintf(&b, "      %s:\n        sink: { http: { endpoints: [%q], body: raw } }\n"+
				"        batch: { bytes: 1KiB }\n        checkpoint: { sync: 50ms }\n", route,
				url+"/"+p.name+"/"+route)
		}
	}
	return b.String()
}

// upgradeReceiver counts the lines that each HTTP route delivers.
type upgradeReceiver struct {
	mu    sync.Mutex // guards the fields below
	lines map[string]map[string]int
	// hang reports whether a request is left unanswered. Nil means that all are answered.
	hang func(path string, lines []string) bool
}

// ServeHTTP takes the lines of one request.
func (s *upgradeReceiver) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off: not counted as received
	}
	path, lines := strings.Trim(r.URL.Path, "/"),
		strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	s.mu.Lock()
	hang := s.hang != nil && s.hang(path, lines)
	if !hang {
		if s.lines[path] == nil {
			s.lines[path] = make(map[string]int)
		}
		for _, line := range lines {
			s.lines[path][line]++
		}
	}
	s.mu.Unlock()
	if hang {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// TestUpgrade runs the program on the state of the previous version. Nothing is lost: the SQL
// tables have each line once. If a line counts as delivered in the state, HTTP does not receive it
// again. The state belongs to pipelines of two and three routes, and has positions in the middle of
// files. Files were rotated, copied and compressed before and after the kill of the previous
// version.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("skipped: the state of the fixture has paths of unix")
	}
	work := t.TempDir()
	if err := os.CopyFS(work, os.DirFS(upgradeDir)); err != nil {
		t.Fatal(err)
	}
	var ledger upgradeLedger
	if err := json.Unmarshal(read(t, filepath.Join(work, "ledger.json")), &ledger); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(work, "files")
	u := &upgrade{t: t, work: work, ledger: ledger,
		disk: newRelocatedFS(t, upgradeRoot, files, ledger.Files)}
	u.receiver.lines = make(map[string]map[string]int)
	server := httptest.NewServer(&u.receiver)
	defer server.Close()
	u.url = server.URL
	u.run()
	u.check("after the upgrade")

	for _, name := range []string{"two", "three"} {
		dir := filepath.Join(files, name)
		u.add(name, filepath.Join(dir, "a.log"), 10)
		u.add(name, filepath.Join(dir, "c.log"), 10)
		rename(t, filepath.Join(dir, "b.log.1"), filepath.Join(dir, "b.log.3"))
		rename(t, filepath.Join(dir, "b.log"), filepath.Join(dir, "b.log.1"))
		u.add(name, filepath.Join(dir, "b.log"), 10)
	}
	u.add("keep", filepath.Join(files, "keep", "x.log"), 10) // its writer continues
	u.add("rename", filepath.Join(files, "rename", "new.log"), 10)
	u.run()
	u.check("after rotations by this version")
	for route, n := range u.run() {
		if n > 0 {
			t.Errorf("%s: %d records were read again with nothing to do", route, n)
		}
	}
	if t.Failed() {
		t.Log(u.log.String())
	}
}

// upgrade is one test of the fixture.
type upgrade struct {
	t        *testing.T
	work     string
	url      string
	ledger   upgradeLedger
	disk     *relocatedFS
	receiver upgradeReceiver
	log      lockedBuffer
	added    int
}

// lockedBuffer is a strings.Builder that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns the text written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// add appends n lines to a file.
func (u *upgrade) add(pipeline, path string, n int) {
	u.t.Helper()
	var text strings.Builder
	for range n {
		u.added++
		line := fmt.Sprintf("line %04d of this version, for %s", u.added, pipeline)
		u.ledger.Lines[pipeline] = append(u.ledger.Lines[pipeline], line)
		fmt.Fprintln(&text, line)
	}
	appendText(u.t, path, text.String())
}

// run runs the engine until everything is delivered, and returns the number of records read by each
// route.
func (u *upgrade) run() map[string]int64 {
	u.t.Helper()
	c, err := engine.Parse([]byte(upgradeConfig(u.work, u.url)), all.Components()...)
	if err != nil {
		u.t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Once: true, FS: u.disk,
		Log: slog.New(slog.NewTextHandler(&u.log, nil))})
	if err != nil {
		u.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), 5*time.Minute)
	defer cancel()
	if err := e.Run(ctx); err != nil {
		u.t.Fatalf("run: %v\n%s", err, u.log.String())
	}
	out := make(map[string]int64)
	for _, r := range e.Status().Routes {
		out[r.Pipeline+"/"+r.Name] = r.ReadRecords
	}
	return out
}

// check compares tables and receivers with the ledger.
func (u *upgrade) check(when string) {
	u.t.Helper()
	for pipeline, want := range u.ledger.Lines {
		have := connectortest.OpenSQLite(u.t, filepath.Join(u.work, pipeline+".db"))
		rows, err := have.Query("SELECT message FROM lines")
		if err != nil {
			u.t.Fatal(err)
		}
		count := make(map[string]int)
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				u.t.Fatal(err)
			}
			count[line]++
		}
		if err := rows.Err(); err != nil {
			u.t.Fatal(err)
		}
		if err := have.Close(); err != nil {
			u.t.Fatal(err)
		}
		u.compare(when+": "+pipeline+"/table", count, want)
		for _, route := range upgradeRoutes[pipeline] {
			path := pipeline + "/" + route
			u.receiver.mu.Lock()
			count := maps.Clone(u.receiver.lines[path])
			u.receiver.mu.Unlock()
			if count == nil {
				count = make(map[string]int)
			}
			for _, i := range u.ledger.Delivered[path] {
				count[want[i]]++
			}
			u.compare(when+": "+path, count, want)
		}
	}
}

// compare reports the lines that do not occur exactly once.
func (u *upgrade) compare(what string, count map[string]int, want []string) {
	u.t.Helper()
	var missing, more []string
	for _, line := range want {
		switch n := count[line]; {
		case n == 0:
			missing = append(missing, line)
		case n > 1:
			more = append(more, line)
		}
		delete(count, line)
	}
	for line := range count {
		more = append(more, "not written: "+line)
	}
	slices.Sort(more)
	if len(missing)+len(more) > 0 {
		u.t.Errorf("%s: %d of %d lines are missing, the first are %.200q; "+
			"%d are too many, the first are %.200q",
			what, len(missing), len(want), missing[:min(3, len(missing))], len(more),
			more[:min(3, len(more))])
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
