package endtoend

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// tableRows is the number of rows copied by each side of a pair.
const tableRows = 300_000

const benchColumns = "id bigint PRIMARY KEY, host text, status bigint, size bigint, " +
	"path text, agent text"

// benchRow is a format for the values of a row in SQL. Its argument is the id of the row.
const benchRow = `%[1]s, '10.0.' || (%[1]s %% 250) || '.7', 200 + %[1]s %% 5, 1000 + %[1]s,
	'/presentations/logstash-monitorama-2013/images/' || %[1]s || '.png',
	'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36'`

// pairs runs bare and ours alternately, once to warm up and then seven times. It reports the median
// speed of ours relative to bare.
func pairs(b *testing.B, unit string, bare, ours func() time.Duration) {
	const count = 7
	for b.Loop() {
		var ratios []float64
		for i := range count + 1 {
			limit, took := bare(), ours()
			if i > 0 {
				ratios = append(ratios, limit.Seconds()/took.Seconds())
				b.Logf("bare %v, penstock %v: %.2f", limit, took, limit.Seconds()/took.Seconds())
			}
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[count/2], unit)
		b.ReportMetric(0, "ns/op")
	}
}

// copied runs the program with an empty state, and checks the number of delivered records.
func copied(b *testing.B, config string, records int64) time.Duration {
	b.Helper()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(config), "state")); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	res := once(b, config)
	took := time.Since(start)
	if got := res.Pipelines[0].Delivered; got != records {
		b.Fatalf("%d records delivered of %d", got, records)
	}
	return took
}

// BenchmarkTablePostgres copies a PostgreSQL table within one server. The speed is relative to
// psql's COPY TO piped into psql's COPY FROM, and its median should be at least 0.5. The program's
// time is that of a whole run with its ledger.
func BenchmarkTablePostgres(b *testing.B) {
	server := connectortest.StartServer(b, "postgres", "psql")
	db := openPostgres(b, server.URL)
	run := func(query string) {
		if _, err := db.Exec(query); err != nil {
			b.Fatalf("%s: %v", query, err)
		}
	}
	run("CREATE TABLE src (" + benchColumns + ")")
	run(fmt.Sprintf("INSERT INTO src SELECT "+benchRow+" FROM generate_series(1, %[2]d) n", "n",
		tableRows))
	run("VACUUM ANALYZE src")
	config := benchConfig(b, fmt.Sprintf("postgres: %q", server.URL),
		fmt.Sprintf("postgres: { url: %q, table: dst, on_new_field: ignore }", server.URL))
	renew := func() {
		run("DROP TABLE IF EXISTS dst, penstock_spans, penstock_marks, penstock_routes")
		run("CREATE TABLE dst AS SELECT * FROM src WITH NO DATA")
		run("CHECKPOINT")
	}
	bare := func() time.Duration {
		renew()
		start := time.Now()
		pipe := exec.Command("sh", "-c",
			`psql -q -d "$1" -c "COPY (SELECT * FROM src ORDER BY id) TO STDOUT" | psql -q -d `+
				`"$1" -c "COPY dst FROM STDIN"`,
			"sh", server.URL)
		if out, err := pipe.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(start)
	}
	pairs(b, "x-psql-copy", bare, func() time.Duration {
		renew()
		return copied(b, config, tableRows)
	})
}

func benchConfig(b *testing.B, from, to string) string {
	b.Helper()
	return write(b, filepath.Join(b.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  copy:
    source: { table: { %s, table: src } }
    sink: { %s }
`, from, to))
}

// BenchmarkTableSQLite copies a table to another SQLite file. The speed is relative to a loop over
// the same driver with the same batch size and synchronous setting. Its median should be at least
// 0.5.
func BenchmarkTableSQLite(b *testing.B) {
	dir := b.TempDir()
	source := filepath.Join(dir, "source.db")
	db := connectortest.OpenSQLite(b, source)
	for _, query := range []string{
		"CREATE TABLE src (" + "id INTEGER PRIMARY KEY, host text, status bigint, size bigint, " +
			"path text, agent text" + ")",
		fmt.Sprintf("WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < "+
			"%[2]d) INSERT INTO src SELECT "+
			benchRow+" FROM s", "n", tableRows),
	} {
		if _, err := db.Exec(query); err != nil {
			b.Fatal(err)
		}
	}
	target := filepath.Join(dir, "target.db")
	config := benchConfig(b, "sqlite: "+source,
		fmt.Sprintf("sqlite: { path: %q, table: dst, on_new_field: ignore }", target))
	renew := func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.RemoveAll(target + suffix); err != nil {
				b.Fatal(err)
			}
		}
	}
	pairs(b, "of-a-bare-loop", func() time.Duration { renew(); return bareLoop(b, source, target) },
		func() time.Duration { renew(); return copied(b, config, tableRows) })
}

// bareLoop copies the table from source to target with 10,000 rows per transaction, and returns the
// time that this takes. It stands for a minimal program.
func bareLoop(b *testing.B, source, target string) time.Duration {
	b.Helper()
	open := func(path string) driver.Conn {
		at := (&url.URL{Path: path}).EscapedPath()
		c, err := new(sqlite.Driver).Open("file:" + at +
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	start := time.Now()
	from, to := open(source), open(target)
	defer from.Close()
	defer to.Close()
	ctx := context.Background()
	exec := func(query string) {
		if _, err := to.(driver.ExecerContext).ExecContext(ctx, query, nil); err != nil {
			b.Fatal(err)
		}
	}
	exec("CREATE TABLE dst (id INTEGER, host text, status bigint, size bigint, path text, " +
		"agent text)")
	rows, err := from.(driver.QueryerContext).QueryContext(ctx,
		"SELECT * FROM src ORDER BY id", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	insert, err := to.Prepare("INSERT INTO dst VALUES (?,?,?,?,?,?)")
	if err != nil {
		b.Fatal(err)
	}
	defer insert.Close()
	values, args := make([]driver.Value, 6), make([]driver.NamedValue, 6)
	exec("BEGIN IMMEDIATE")
	n := 0
	for ; ; n++ {
		if err := rows.Next(values); err == io.EOF {
			break
		} else if err != nil {
			b.Fatal(err)
		}
		for i, v := range values {
			args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
		}
		if _, err := insert.(driver.StmtExecContext).ExecContext(ctx, args); err != nil {
			b.Fatal(err)
		}
		if n%10_000 == 9_999 {
			exec("COMMIT")
			exec("BEGIN IMMEDIATE")
		}
	}
	exec("COMMIT")
	if n != tableRows {
		b.Fatalf("%d rows of %d", n, tableRows)
	}
	return time.Since(start)
}
