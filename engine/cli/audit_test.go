package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/internal/audit"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
)

// auditConfig has a route into each sink that an audit can read, and one into a sink that it cannot
// read.
const auditConfig = `state: ./state
pipelines:
  rows: {source: {spool_dir: {path: spool, quiet_period: 1ms}}, sink: {sqlite: {path: rows.db, table: t}},
    processors: [{parse: {format: json}}, {where: 'n != 7'}]}
  lines: {source: {tail: {include: [./logs/*]}}, sink: {file: {path: lines.out, format: raw}}}
  copies:
    source: {table: {sqlite: source.db, table: t}}
    sink: {sqlite: {path: copies.db, table: t}}
  silent: {source: {tail: {include: [./logs/*]}}, sink: {drop: {}}}
  objects: {source: {tail: {include: [./logs/*]}}, batch: {records: 20},
    sink: {file: {path: objects.out, rotate: {bytes: 4KiB}}}}
`

// auditFixture delivers data over all routes of auditConfig.
func auditFixture(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, dir := range []string{"spool", "logs"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var rows, lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&rows, "{\"n\":%d,\"price\":%d.50}\n", i, i)
		fmt.Fprintf(&lines, "line %03d of the first file, with some more words in it\n", i)
	}
	rows.WriteString("no JSON\n")
	for name, text := range map[string]string{
		"penstock.yaml": auditConfig, "spool/a.json": rows.String(), "logs/a.log": lines.String(),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	execSQLite(t, "source.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)",
		"INSERT INTO t SELECT value, 'name ' || value FROM (WITH RECURSIVE s(value) AS "+
			"(SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < 50) SELECT value FROM s)")
	if got := realProgram().try(t, "run", "--once", "penstock.yaml"); got.code != exitOK {
		t.Fatalf("run --once: exit code %d: %s", got.code, got.stderr)
	}
}

func execSQLite(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := connectortest.OpenSQLite(t, path)
	for _, s := range statements {
		connectortest.Execute(t, db, s)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// replaceIn overwrites text in a file, without a change of inode and length.
func replaceIn(t *testing.T, path, old, by string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), old)
	if at < 0 || len(old) != len(by) {
		t.Fatalf("%s has no %q", path, old)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(by), int64(at))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// acceptOutput makes the next start of a route accept its output as it is.
func acceptOutput(route string) func(*testing.T) {
	return func(t *testing.T) {
		got := realProgram().try(t, "checkpoint", "set", "state", "--route", route,
			"--accept-output")
		if got.code != exitOK {
			t.Fatal(got.stderr)
		}
	}
}

// TestAudit changes sources and sinks after the delivery, and checks the differences that audit
// reports.
func TestAudit(t *testing.T) {
	auditFixture(t)
	sql := func(path, statement string) func(*testing.T) {
		return func(t *testing.T) { execSQLite(t, path, statement) }
	}
	added := func(path, text string) func(*testing.T) {
		return func(t *testing.T) { appendTo(t, path, text) }
	}
	replaced := func(path, old, by string) func(*testing.T) {
		return func(t *testing.T) { replaceIn(t, path, old, by) }
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T)
		route  string
		code   int
		want   []string
	}{
		{"sound", nil, "", exitOK, []string{
			"rows/main: read 101 records in 1 partition\n" +
				"  0 not delivered yet, 1 dropped by processors, 1 dead letters\n" +
				"  99 must be in the sink (compared)\n  0 differences\n",
			"lines/main: read 100 records", "copies/main: read 50 records",
			"silent/main: read 100 records",
			"100 must be in the sink (not compared: sink drop cannot be read)",
			"objects/main: read 100 records",
		}},
		{"row deleted", sql("rows.db", "DELETE FROM t WHERE n = 5"),
			"rows/main", exitUnfinished,
			[]string{"missing      rows/main  a.json.done: record f1.", "@126\n",
				"1 difference\n"}},
		{"row repeated", sql("rows.db", "INSERT INTO t SELECT * FROM t WHERE n = 5"),
			"rows/main", exitUnfinished,
			[]string{"extra        rows/main  a.json.done: record f1.", "@126\n"}},
		{"value changed", sql("rows.db", "UPDATE t SET price = 5.25 WHERE n = 5"),
			"rows", exitUnfinished,
			[]string{"missing      rows/main", "@126\n"}},
		{"table dropped", sql("rows.db", "DROP TABLE t"),
			"rows/main", exitUnfinished,
			[]string{"does not exist, but 99 records must be in it"}},
		{"ledger behind", sql("rows.db", "UPDATE penstock_marks SET num = 95"),
			"rows/main", exitUnfinished,
			[]string{"unknown      rows/main", "after 95 up to ", "undelivered  rows/main",
				"97 records"}},
		{"line never read", added("logs/a.log", "never read\n"),
			"lines/main", exitUnfinished,
			[]string{"undelivered  lines/main  logs/a.log: after 5,500 up to 5,511, 1 record\n"}},
		{"file never read", added("logs/new.log", "never read\n"),
			"silent/main", exitUnfinished,
			[]string{"undelivered  silent/main  logs/new.log: after 0 up to 11, 1 record\n"}},
		{"output line changed", replaced("lines.out", "line 042", "LINE 042"),
			"lines/main", exitUnfinished,
			[]string{"missing      lines/main  logs/a.log: record f1.", "@2365\n"}},
		{"output of others", added("lines.out", "line of another program\n"),
			"lines/main", exitOK, []string{"0 differences"}},
		{"output accepted", acceptOutput("lines/main"), "lines/main", exitOK,
			[]string{"0 differences"}},
		{"rotated output accepted", acceptOutput("objects/main"), "objects/main", exitOK,
			[]string{"0 differences"}},
		{"output replaced and accepted", func(t *testing.T) {
			replaceIn(t, "lines.out", "line 042", "LINE 042")
			acceptOutput("lines/main")(t)
		}, "lines/main", exitUnfinished, []string{"@2365\n", "1 difference\n"}},
		{"path changed", func(t *testing.T) {
			replaceIn(t, "penstock.yaml", "lines.out", "other.out")
		}, "lines/main", exitUnfinished, []string{"100 must be in the sink", "100 differences"}},
		{"path changed to a missing folder", func(t *testing.T) {
			replaceIn(t, "penstock.yaml", "lines.out", "n/new.out")
		}, "lines/main", exitUnfinished, []string{"100 must be in the sink", "100 differences"}},
		{"path changed and the file renamed", func(t *testing.T) {
			replaceIn(t, "penstock.yaml", "lines.out", "other.out")
			if err := os.Link("lines.out", "other.out"); err != nil {
				t.Fatal(err)
			}
		}, "lines/main", exitOK, []string{"0 differences"}},
		{"output replaced", func(t *testing.T) {
			if err := os.Remove("lines.out"); err != nil {
				t.Fatal(err)
			}
			appendTo(t, "lines.out", "")
		}, "lines/main", exitUnfinished,
			[]string{"was moved or replaced", "1 of 1 routes could not be audited"}},
		{"rotated output changed", replaced("objects.out.1", "line 003", "LINE 003"),
			"objects/main", exitUnfinished,
			[]string{"missing      objects/main  logs/a.log: record f1.", "@220\n"}},
		{"source row changed", sql("source.db", "UPDATE t SET name = 'x' WHERE id = 3"),
			"copies/main", exitUnfinished,
			[]string{"missing      copies/main", "1 difference"}},
		{"source row added", sql("source.db", "INSERT INTO t VALUES (51, 'x')"),
			"copies/main", exitUnfinished,
			[]string{"undelivered  copies/main", "1 not delivered yet"}},
		{"source file deleted", func(t *testing.T) {
			if err := os.Remove("spool/a.json.done"); err != nil {
				t.Fatal(err)
			}
		}, "rows/main", exitOK,
			[]string{"1 partition of the checkpoint no longer in the source: not compared"}},
		{"source file copied and kept", func(t *testing.T) {
			text, err := os.ReadFile("logs/a.log")
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, "logs/a2.log", string(text))
		}, "silent/main", exitUnfinished,
			[]string{"undelivered  silent/main", "may be a copy that a log rotation has made"}},
		{"source file copied", func(t *testing.T) {
			text, err := os.ReadFile("logs/a.log")
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, "logs/a2.log", string(text))
			if err := os.Remove("logs/a.log"); err != nil {
				t.Fatal(err)
			}
		}, "silent/main", exitUnfinished,
			[]string{"undelivered  silent/main", "may be a copy that a log rotation has made"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := snapshotOf(t)
			t.Cleanup(func() { restore(t, before) }) // after the change's database is closed
			if c.change != nil {
				c.change(t)
			}
			args := strings.Fields("audit penstock.yaml " + c.route)
			got := realProgram().try(t, args...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d", got.code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(got.out+got.stderr, want) {
					t.Errorf("there is no %q", want)
				}
			}
			if t.Failed() {
				t.Logf("%s%s", got.out, got.stderr)
			}
		})
	}
}

// restore restores the files of the snapshot. It rewrites changed files in place, and removes files
// that are not in the snapshot.
func restore(t *testing.T, before map[string]string) {
	t.Helper()
	for name, text := range snapshotOf(t) {
		if old, ok := before[name]; !ok {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		} else if old != text {
			writeFile(t, name, old)
		}
	}
}

// TestAuditAfterRefusedReplay replays dead letters that are refused again. Their records must still
// count as dead letters.
func TestAuditAfterRefusedReplay(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "in.json", "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n")
	writeFile(t, "penstock.yaml", `pipelines:
  p: {source: {tail: {include: [in.json]}}, processors: [{parse: {format: json}}],
    sink: {sqlite: {path: out.db, table: t}}}
`)
	execSQLite(t, "out.db", "CREATE TABLE t (n INTEGER CHECK (n < 3))")
	for _, line := range []string{"run --once", "dead replay", "dead replay"} {
		realProgram().try(t, append(strings.Fields(line), "penstock.yaml")...)
	}
	got := realProgram().try(t, "audit", "penstock.yaml")
	const want = "0 dropped by processors, 2 dead letters\n" +
		"  2 must be in the sink (compared)\n  0 differences\n"
	if got.code != exitOK || !strings.Contains(got.out, want) {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.stderr)
	}
}

// TestAuditBesideRun audits while another process uses the state directory. Data that the other
// process has not delivered yet must not count as a difference. The audit must change no file.
func TestAuditBesideRun(t *testing.T) {
	auditFixture(t)
	before := snapshotOf(t)
	dir, err := osfs.New().OpenDir("state")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	lock, err := dir.Lock(pipeline.LockName, "a test")
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, "logs/a.log", "not read yet\n")
	before["logs/a.log"] += "not read yet\n"
	got := realProgram().try(t, "audit", "--json", "penstock.yaml", "lines/main")
	want := `"ok":true,"route":"lines/main","running":true,"partitions":1,` +
		`"partitions_not_in_source":0,"records":101,"unsettled":1,"expected":100`
	if got.code != exitOK || !strings.Contains(got.out, want) {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.stderr)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	realProgram().try(t, "audit", "penstock.yaml")
	for name, text := range snapshotOf(t) {
		if before[name] != text {
			t.Errorf("the audit has changed %s", name)
		}
	}
}

// snapshotOf returns the contents of all files. It omits the lock of the state directory, which
// names its last holder.
func snapshotOf(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == pipeline.LockName {
			return err
		}
		text, err := os.ReadFile(path)
		all[filepath.ToSlash(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFailedAudit checks that a route that could not be audited does not count as compared.
func TestFailedAudit(t *testing.T) {
	var out strings.Builder
	a := auditPrinter{w: &out, json: true, route: "a/main"}
	if err := a.report(&audit.Report{}, "file", errors.New("no access")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"error":"no access"`, `"sink_compared":false`, `"sink_asked":false`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %s", out.String(), want)
		}
	}
}
