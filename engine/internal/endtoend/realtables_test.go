package endtoend

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// figuresOfTable returns the figures of a table of the log.
func figuresOfTable(t *testing.T, db *sql.DB, table string) figures {
	t.Helper()
	f := figures{status: map[string]int{}}
	err := db.QueryRow(`SELECT count(*), sum(size), count(DISTINCT host) FROM `+
		table).Scan(&f.records, &f.bytes, &f.hosts)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(`SELECT CAST(status AS text), count(*) FROM ` + table + ` GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var status string
		var n int
		if err := rows.Scan(&status, &n); err != nil {
			t.Fatal(err)
		}
		f.status[status] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return f
}

// realTable sends the real access log to a table. It compares figures of the table with figures of
// the log, which are computed with an independent regular expression.
func realTable(t *testing.T, sink string, open func(dir string) *sql.DB) {
	t.Helper()
	data := os.Getenv("PENSTOCK_DATA")
	if data == "" {
		t.Skip("skipped: PENSTOCK_DATA names no folder of real logs")
	}
	log := read(t, filepath.Join(data, "apache_logs.log"))
	want := figuresOfLog(t, log)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "access.log"), string(log))
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  real:
    source: { spool_dir: { path: ./spool, quiet_period: 50ms } }
    processors: [ { parse: { format: combined } } ]
    sink: { %s }
    batch: { records: 700 }
`, sink))
	if p := once(t, config).Pipelines[0]; p.Delivered != 10_000 || p.Dead != 0 || p.Dropped != 0 {
		t.Errorf("%+v, want all of 10,000 delivered", p)
	}
	got := figuresOfTable(t, open(dir), "access")
	if want.records != 10_000 || got.records != want.records || got.bytes != want.bytes ||
		got.hosts != want.hosts ||
		!maps.Equal(got.status, want.status) {
		t.Errorf("the table has %+v, the log %+v", got, want)
	}
}

func TestRealLogIntoSQLite(t *testing.T) {
	t.Parallel()
	realTable(t, `sqlite: { path: ./out.db, table: access }`, func(dir string) *sql.DB {
		return connectortest.OpenSQLite(t, filepath.Join(dir, "out.db"))
	})
}

func TestRealLogIntoPostgres(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	sink := fmt.Sprintf(`postgres: { url: %q, table: access, workers: 4 }`, server.URL)
	realTable(t, sink, func(string) *sql.DB { return openPostgres(t, server.URL) })
}
