package endtoend

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestStateDirectoryDeleted deletes or replaces the state directory of a running program, which
// must stop and name the directory.
func TestStateDirectoryDeleted(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for _, replace := range []bool{false, true} {
		dir := t.TempDir()
		config := spoolJob(t, dir, "file: { path: ./out.txt, format: raw }", "")
		log, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		d := launch(t, log, bin, "run", config)
		eventually(t, "everything is delivered",
			func() bool { return sizeOf(filepath.Join(dir, "out.txt")) == 5000*7 })
		state := filepath.Join(dir, "state")
		if err := os.Rename(state, filepath.Join(dir, "moved")); err != nil {
			t.Fatal(err)
		}
		if replace {
			err = os.Mkdir(state, 0o700)
		} else {
			err = os.RemoveAll(filepath.Join(dir, "moved"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if code := d.exit(10 * time.Second); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		if text := read(t, log.Name()); bytes.Count(text,
			[]byte("state directory "+state+" was deleted or replaced")) == 0 {
			t.Errorf("the log does not name the state directory:\n%s", text)
		}
	}
}

// TestLedgerLost empties the ledger of a table, and then drops it. Each time, the program must stop
// with an error that names a command, and must deliver everything again only after that command. If
// the ledger is merely behind the checkpoint, the program must resume from the ledger.
func TestLedgerLost(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const records = 5000
	config := spoolJob(t, dir, "sqlite: { path: ./out.db, table: lines }",
		"    batch: { records: 100, bytes: 700B }\n")
	db, err := sql.Open("sqlite", filepath.Join(dir, "out.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	once(t, config)
	rows := func() int64 { return number(db, `SELECT count(*) FROM lines`) }
	if n := rows(); n != records {
		t.Fatalf("%d rows", n)
	}
	connectortest.Execute(t, db, `UPDATE penstock_marks SET num = 7 * 1000`)
	if res := once(t, config); res.Pipelines[0].Delivered != records-1000 ||
		rows() != 2*records-1000 {
		t.Errorf("a ledger that lags behind by %d records: %+v, %d rows", records-1000,
			res.Pipelines, rows())
	}
	before := rows()
	for _, lose := range []string{`DELETE FROM penstock_marks`, `DROP TABLE penstock_marks`} {
		connectortest.Execute(t, db, lose)
		_, err = tryOnce(t, config)
		if err == nil || rows() != before {
			t.Fatalf("%s: %v, and %d rows more", lose, err, rows()-before)
		}
		_, command, _ := strings.Cut(err.Error(), "`penstock ")
		command, _, _ = strings.Cut(command, "`")
		for _, want := range []string{"penstock_marks", "up to 35000 bytes", "checkpoint reset"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %q: %v", lose, want, err)
			}
		}
		if out, err := exec.Command(bin, strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("penstock %s: %v\n%s", command, err, out)
		}
		if res := once(t, config); res.Pipelines[0].Delivered != records {
			t.Errorf("after %s: %+v", command, res.Pipelines)
		}
		before = rows()
	}
}
