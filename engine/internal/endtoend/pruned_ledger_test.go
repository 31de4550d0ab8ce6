package endtoend

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// prunedLedger is a folder of logs that finite runs copy to SQLite.
type prunedLedger struct {
	t           *testing.T
	dir, config string
	db          *sql.DB
}

func newPrunedLedger(t *testing.T) *prunedLedger {
	dir := t.TempDir()
	f := &prunedLedger{t: t, dir: dir}
	f.config = write(t, filepath.Join(dir, "penstock.yaml"), `
state: ./state
pipelines:
  logs:
    source: { tail: { include: ["./in/*.log"], copy_wait: 50ms, gone_wait: 50ms } }
    sink: { sqlite: { path: ./out.db, table: lines } }
    checkpoint: { sync: 20ms }
`)
	f.db = connectortest.OpenSQLite(t, filepath.Join(dir, "out.db"))
	connectortest.Execute(t, f.db, "PRAGMA journal_mode = WAL")
	return f
}

func (f *prunedLedger) file(name string) string { return filepath.Join(f.dir, "in", name) }

// write creates a file of 100 lines, each of which begins with the given word.
func (f *prunedLedger) write(name, what string) {
	f.t.Helper()
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "%s %d\n", what, i)
	}
	write(f.t, f.file(name), text.String())
}

func (f *prunedLedger) remove(names ...string) {
	f.t.Helper()
	for _, name := range names {
		if err := os.Remove(f.file(name)); err != nil {
			f.t.Fatal(err)
		}
	}
}

// has fails the test unless the ledger has the progress of the given number of partitions (marks),
// and the table has the given numbers of lines. A key of the map lines is the first word of the
// lines to count.
func (f *prunedLedger) has(when string, marks int64, lines map[string]int64) {
	f.t.Helper()
	if n := number(f.db, "SELECT count(*) FROM penstock_marks"); n != marks {
		f.t.Errorf("%s: %d marks, want %d", when, n, marks)
	}
	if n := number(f.db, "SELECT count(*) FROM penstock_spans"); n != 0 {
		f.t.Errorf("%s: %d span rows were not folded", when, n)
	}
	for what, want := range lines {
		if n := number(f.db, fmt.Sprintf("SELECT count(*) FROM lines WHERE message LIKE '%s %%'",
			what)); n != want {
			f.t.Errorf("%s: %d lines of %s, want %d", when, n, what, want)
		}
	}
}

// TestLedgerForgets checks that the ledger in a database keeps the progress of existing files only.
// If a file is deleted during a run, its progress stays until the next run. A file that replaces a
// deleted one must be delivered, even if it has the same inode or the same beginning, or comes from
// a backup.
func TestLedgerForgets(t *testing.T) {
	t.Parallel()
	f := newPrunedLedger(t)
	for _, name := range []string{"a.log", "b.log", "c.log"} {
		f.write(name, strings.TrimSuffix(name, ".log"))
	}
	once(t, f.config)
	f.has("first run", 3, map[string]int64{"a": 100, "b": 100, "c": 100})
	once(t, f.config)
	f.has("nothing has changed", 3, map[string]int64{"a": 100, "b": 100, "c": 100})

	f.remove("a.log", "b.log")
	// d.log may get the inode of a.log. On a file system without birth times, only its contents
	// distinguish it from a.log.
	f.write("d.log", "d")
	once(t, f.config)
	f.has("two are gone", 2, map[string]int64{"a": 100, "b": 100, "c": 100, "d": 100})

	f.remove("c.log")
	f.write("e.log", "e") // possibly with the same inode, and the same beginning
	text := string(read(t, f.file("e.log")))
	write(t, f.file("e.log"), strings.Replace(text[:len(text)/2], "e", "c", -1)+text[len(text)/2:])
	once(t, f.config)
	f.has("another file that begins alike", 2, map[string]int64{"a": 100, "c": 151, "e": 49})

	f.write("a.log", "a") // from a backup, much later
	once(t, f.config)
	f.has("restored", 3, map[string]int64{"a": 200, "b": 100, "d": 100})
	once(t, f.config)
	f.has("in the end", 3, map[string]int64{"a": 200, "b": 100, "c": 151, "d": 100, "e": 49})
}

// killAfter starts the program and kills it within half a second.
func killAfter(t *testing.T, config string, rnd *rand.Rand) {
	t.Helper()
	cmd, _, errs, err := started(t, config)
	if err != nil {
		t.Fatal(err)
	}
	pause(t.Context(), time.Duration(rnd.IntN(500))*time.Millisecond)
	_ = cmd.Process.Kill() // it may have ended already
	if err := cmd.Wait(); err != nil && cmd.ProcessState.Exited() {
		t.Fatalf("the program ended by itself: %v\n%s", err, errs.String())
	}
}

// TestLedgerForgetsKilled repeats TestLedgerForgets with kills at random moments of the runs. No
// line may be lost or repeated. After a complete run, the ledger must have the progress of existing
// files only.
func TestLedgerForgetsKilled(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	f := newPrunedLedger(t)
	want := make(map[string]int64)
	const rounds, each, kills = 4, 20, 5
	for round := range rounds {
		for i := range each {
			if round > 0 {
				f.remove(fmt.Sprintf("r%d-%d.log", round-1, i))
			}
			name := fmt.Sprintf("r%d-%d", round, i)
			f.write(name+".log", name)
			want[name] = 100
		}
		for range kills {
			killAfter(t, f.config, rnd)
		}
		once(t, f.config)
		f.has(fmt.Sprint("round ", round), each, want)
	}
}

// TestLedgerKeepsAway renames a folder. The state and the ledger must keep the progress of its
// files for several runs. When the folder gets its old name again, only new lines may be read.
func TestLedgerKeepsAway(t *testing.T) {
	t.Parallel()
	f := newPrunedLedger(t)
	f.write("a.log", "a")
	f.write("b.log", "b")
	once(t, f.config)
	in, away := filepath.Join(f.dir, "in"), filepath.Join(f.dir, "away")
	if err := os.Rename(in, away); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		once(t, f.config)
		f.has("the folder is away", 2, map[string]int64{"a": 100, "b": 100})
	}
	if err := os.Rename(away, in); err != nil {
		t.Fatal(err)
	}
	write(t, f.file("a.log"), string(read(t, f.file("a.log")))+"a 100\n")
	once(t, f.config)
	f.has("it is back", 2, map[string]int64{"a": 101, "b": 100})
}
