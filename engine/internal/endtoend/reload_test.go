package endtoend

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/status"
)

// reloadableRoutes are the routes of reloadable. Each has a table in a file of its own.
var reloadableRoutes = strings.Fields("a b d e f g h i j c")

// reloadable writes a config with ten routes from one tail source to SQLite. Route c, the last one,
// depends on version.
func reloadable(t *testing.T, dir, address string, version int) string {
	t.Helper()
	var routes strings.Builder
	for _, name := range reloadableRoutes {
		linger := 5
		if name == "c" {
			linger += version
		}
		fmt.Fprintf(&routes, "      %s: { sink: { sqlite: { path: ./%[1]s.db, table: "+
			"lines } }, batch: { linger: %dms } }\n", name, linger)
	}
	path := filepath.Join(dir, "penstock.yaml")
	return write(t, path, fmt.Sprintf(`
state: ./state
admin: %s
pipelines:
  p:
    source: { tail: { include: ["./in/*.log"] } }
    routes:
%s`, address, routes.String()))
}

// TestReload reloads a config ten times while lines arrive. Unchanged routes must not restart, and
// every line must be in every table once. An invalid config must change nothing, and its error must
// be reported by the command, in the status and in the log. [TestReloadLoad] reloads more often.
func TestReload(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), connectortest.FreeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	in := filepath.Join(dir, "in", "a.log")
	write(t, in, "")
	config := reloadable(t, dir, address, 0)
	d := launch(t, log, bin, "run", config)
	reloads, lines, unchanged := 10, 0, len(reloadableRoutes)-1
	add := func() { appendLines(t, in, lines+1, lines+500); lines += 500 }
	picture := func() (s *status.Status) {
		eventually(t, "a status with all routes", func() bool {
			s, err = admin.Ask(t.Context(), address, "")
			return err == nil && len(s.Routes) == unchanged+1
		})
		return s
	}
	picture() // it runs
	for version := range reloads {
		add()
		reloadable(t, dir, address, version+1)
		if out, err := exec.Command(bin, "reload", config).CombinedOutput(); err != nil ||
			!strings.HasPrefix(string(out), "reloaded in") {
			t.Fatalf("reload %d: %v\n%s", version, err, out)
		}
	}
	add()
	eventually(t, "everything is delivered", func() bool {
		s := picture()
		for _, r := range s.Routes[:unchanged] {
			if r.Delivered != int64(lines) {
				return false
			}
		}
		last := s.Routes[unchanged]
		return last.InFlight+last.Waiting == 0 && countRows(t, filepath.Join(dir, "c.db")) == lines
	})
	s := picture()
	if s.Reload == nil || s.Reload.Count != reloads || s.Reload.Failed != 0 {
		t.Errorf("after %d reloads: %+v", reloads, s.Reload)
	}
	for _, r := range s.Routes[:unchanged] {
		if r.Starts != 1 || r.Redelivered != 0 {
			t.Errorf("the unchanged route %s started %d times and redelivered %d batches",
				r.Name, r.Starts, r.Redelivered)
		}
	}
	for _, name := range reloadableRoutes {
		if n := countRows(t, filepath.Join(dir, name+".db")); n != lines {
			t.Errorf("table %s has %d distinct lines, want %d", name, n, lines)
		}
	}
	refuseReload(t, bin, config, address)
	if text := string(read(t, log.Name())); !strings.Contains(text, "configuration not reloaded") {
		t.Errorf("the log says nothing of the invalid config:\n%s", text)
	}
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// appendLines appends the lines from first to last to the file at path.
func appendLines(t *testing.T, path string, first, last int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := first; n <= last; n++ {
		if _, err := fmt.Fprintf(f, "line %d\n", n); err != nil {
			t.Fatal(err)
		}
	}
}

// refuseReload makes the config invalid and reloads it.
func refuseReload(t *testing.T, bin, config, address string) {
	t.Helper()
	write(t, config, string(read(t, config))+"    bach: {}\n")
	out, err := exec.Command(bin, "reload", address).CombinedOutput()
	if code := exitOf(err); code != 1 || !strings.Contains(string(out), `did you mean "batch"?`) {
		t.Errorf("reload of an invalid config: exit code %d\n%s", code, out)
	}
	s, err := admin.Ask(t.Context(), address, "")
	if err != nil || s.Reload.OK || !strings.Contains(s.Reload.Error, "bach") {
		t.Errorf("status after an invalid config: %+v, %v", s, err)
	}
}

// TestWatch changes the config of a program with --watch.
func TestWatch(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), connectortest.FreeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write(t, filepath.Join(dir, "in", "a.log"), "a line\n")
	d := launch(t, log, bin, "run", "--watch", reloadable(t, dir, address, 0))
	eventually(t, "the line is delivered",
		func() bool { return countRows(t, filepath.Join(dir, "c.db")) == 1 })
	reloadable(t, dir, address, 1)
	eventually(t, "the config is reloaded", func() bool {
		s, err := admin.Ask(t.Context(), address, "")
		return err == nil && s.Reload != nil && s.Reload.OK
	})
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestConfigDirectory runs a config that consists of several files. Each record must be in exactly
// one of two outputs, because one route gets the records that no other route gets (`otherwise:
// true`). During the run, the test adds a file with another pipeline, which must start.
func TestConfigDirectory(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	config := filepath.Join(dir, "etc")
	write(t, filepath.Join(config, "penstock.yaml"), `
state: ../state
processors: { web: [parse: { format: json }] }
`)
	write(t, filepath.Join(config, "conf.d", "web.yaml"), `
pipelines:
  web:
    source: { tail: { include: ["../../in/*.log"], start: beginning } }
    routes:
      errors:
        processors: [use: web, where: status >= 500]
        sink: { file: { path: ../../errors.txt } }
      rest: { processors: [use: web], otherwise: true, sink: { file: { path: ../../rest.txt } } }
`)
	var in strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&in, "{\"status\":%d}\n", n%1000)
	}
	write(t, filepath.Join(dir, "in", "a.log"), in.String())
	d := launch(t, log, bin, "run", "--watch", config)
	lines := func(name string) int {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // missing at first
		return strings.Count(string(text), "\n")
	}
	eventually(t, "each record is in one output",
		func() bool { return lines("errors.txt") == 500 && lines("rest.txt") == 500 })
	write(t, filepath.Join(config, "conf.d", "copy.yaml"), `
pipelines:
  copy:
    source: { tail: { include: ["../../in/*.log"], start: beginning } }
    sink: { file: { path: ../../copy.txt, format: raw } }
`)
	eventually(t, "the added file takes effect", func() bool { return lines("copy.txt") == 1000 })
	if n := lines("errors.txt") + lines("rest.txt"); n != 1000 {
		t.Errorf("%d records after the reload, want 1000", n)
	}
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// exitOf returns the exit code in the error of a command.
func exitOf(err error) int {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return 0
}

// countRows returns the number of distinct lines in a table, or -1 if a line is repeated or the
// table cannot be read.
func countRows(t *testing.T, path string) int {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all, distinct int
	if err := db.QueryRow("SELECT count(*), count(DISTINCT message) FROM lines").Scan(&all,
		&distinct); err != nil || all != distinct {
		return -1
	}
	return distinct
}
