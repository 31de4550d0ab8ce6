package endtoend

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// wayBack is a run of TestWayBack.
type wayBack struct {
	t      *testing.T
	dir    string
	config string
	lines  int
}

// TestWayBack replaces this program by an older one with the previous checkpoint format, and then
// returns to this one. PENSTOCK_BEFORE names the older program. It refuses the new state and
// changes nothing; after `checkpoint convert` it continues. In the end, SQLite and a file must each
// have every line once.
func TestWayBack(t *testing.T) {
	before := os.Getenv("PENSTOCK_BEFORE")
	if before == "" {
		t.Skip("skipped: `make way-back` sets PENSTOCK_BEFORE to a program of the format before")
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	w := &wayBack{t: t, dir: t.TempDir()}
	w.config = write(t, filepath.Join(w.dir, "penstock.yaml"), fmt.Sprintf(`
state: %[1]s/state
pipelines:
  tail:
    source: { tail: { include: ["%[1]s/logs/*.log*"] } }
    sink: { sqlite: { path: %[1]s/tail.db, table: lines } }
  file:
    source: { tail: { include: ["%[1]s/logs/*.log*"] } }
    sink: { file: { path: %[1]s/file.out, format: raw } }
  spool:
    source: { spool_dir: { path: %[1]s/spool, finished: keep } }
    sink: { sqlite: { path: %[1]s/spool.db, table: lines } }
`, w.dir))
	w.add()
	w.run(bin, 0, "")
	w.check("this program")

	w.add()
	state := filepath.Join(w.dir, "state", "checkpoint.log")
	kept := string(read(t, state))
	w.run(before, 1, "written by a newer penstock")
	if string(read(t, state)) != kept {
		t.Fatal("the program before has changed a state that it refused")
	}
	out, err := exec.Command(bin, "checkpoint", "convert", "--format", "2",
		filepath.Join(w.dir, "state")).CombinedOutput()
	if err != nil {
		t.Fatalf("convert: %v\n%s", err, out)
	}
	w.run(before, 0, "")
	w.check("the program before, after the way back")

	w.add()
	w.run(bin, 0, "")
	w.check("this program, after the way forward")
}

// add appends lines, rotates a file and adds one to the spool.
func (w *wayBack) add() {
	var text strings.Builder
	for range 500 {
		w.lines++
		fmt.Fprintf(&text, "line %d\n", w.lines)
	}
	log := filepath.Join(w.dir, "logs", "a.log")
	if w.lines > 500 {
		rename(w.t, log, fmt.Sprintf("%s.%d", log, w.lines))
	}
	write(w.t, log, text.String())
	write(w.t, filepath.Join(w.dir, "spool", fmt.Sprintf("%d.log", w.lines)), text.String())
}

// run runs a program once and checks its exit code and messages.
func (w *wayBack) run(bin string, code int, want string) {
	w.t.Helper()
	out, err := exec.Command(bin, "run", "--once", w.config).CombinedOutput()
	if got := exitOf(err); got != code || !strings.Contains(string(out), want) {
		w.t.Fatalf("%s run --once: exit code %d, want %d with %q\n%s", bin, got, code, want, out)
	}
}

// check compares tables and file with the lines.
func (w *wayBack) check(after string) {
	w.t.Helper()
	found := map[string]map[string]int{"file.out": {}}
	for _, name := range []string{"tail.db", "spool.db"} {
		db := connectortest.OpenSQLite(w.t, filepath.Join(w.dir, name))
		rows, err := db.Query("SELECT message FROM lines")
		if err != nil {
			w.t.Fatal(err)
		}
		count := make(map[string]int)
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				w.t.Fatal(err)
			}
			count[line]++
		}
		if err := rows.Err(); err != nil {
			w.t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			w.t.Fatal(err)
		}
		found[name] = count
	}
	for line := range strings.Lines(string(read(w.t, filepath.Join(w.dir, "file.out")))) {
		found["file.out"][strings.TrimSuffix(line, "\n")]++
	}
	for name, count := range found {
		wrong := 0
		for n := range w.lines {
			if count[fmt.Sprintf("line %d", n+1)] != 1 {
				wrong++
			}
		}
		if wrong > 0 || len(count) != w.lines {
			w.t.Errorf("%s: %s has %d distinct lines of %d, and %d are missing or repeated", after,
				name, len(count), w.lines, wrong)
		}
	}
}
