package table_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

func TestMain(m *testing.M) { os.Exit(connectortest.RunWaiting(m)) }

// openSQLite creates a database file for a test.
func openSQLite(t testing.TB) (*sql.DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "source.db")
	return connectortest.OpenSQLite(t, path), path
}

var execute = connectortest.Execute

// newSource returns a source with the default options as modified by set.
func newSource(t testing.TB, h stream.Host, set func(o *table.Options)) stream.Source {
	t.Helper()
	o := table.DefaultOptions()
	set(o)
	s, err := table.New(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// events creates a table in which several rows have the same time, and returns its rows as records.
func events(t testing.TB, db *sql.DB, timeType string) (want []string) {
	t.Helper()
	execute(t, db, "CREATE TABLE events (id INTEGER PRIMARY KEY, at "+timeType+
		" NOT NULL, note text)")
	for i := range 120 {
		at := fmt.Sprintf("2026-01-05 06:%02d:00+00", i/13)
		if timeType == "datetime" {
			at = strings.TrimSuffix(at, "+00")
		}
		execute(t, db, fmt.Sprintf("INSERT INTO events VALUES (%d, '%s', 'note %d')",
			1000-i, at, i))
	}
	rows, err := db.Query("SELECT id, CAST(at AS char(22)), note FROM events ORDER BY at, id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		var at, note string
		if err := rows.Scan(&id, &at, &note); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf(`{"id":%d,"at":"%s","note":"%s"}`, id, at, note))
	}
	return want
}

func TestSuiteSQLite(t *testing.T) {
	db, path := openSQLite(t)
	want := events(t, db, "text")
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t *testing.T, h *streamtest.Host) stream.Source {
			return newSource(t, h, func(o *table.Options) {
				o.SQLite, o.Table, o.OrderBy = path, "events", []string{"at", "id"}
			})
		},
		Want: [][]string{want},
	})
}

// TestPostgres runs all tests that need a real server.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	t.Run("suite", func(t *testing.T) { suitePostgres(t, server) })
	t.Run("late transactions", func(t *testing.T) { lateTransactions(t, server) })
	t.Run("notify", func(t *testing.T) { notified(t, server) })
	t.Run("parallel", func(t *testing.T) { parallel(t, server) })
	fresh := func(t *testing.T) fixture { return postgresFixture(t, server) }
	t.Run("row in the past", func(t *testing.T) { pastRow(t, fresh(t)) })
	t.Run("truncated", func(t *testing.T) { truncated(t, fresh(t)) })
	t.Run("refused", func(t *testing.T) { refused(t, "postgres", fresh) })
	t.Run("stopped", func(t *testing.T) { stopped(t, "postgres", fresh) })
	t.Run("narrow split", func(t *testing.T) { narrowSplit(t, fresh(t)) })
	t.Run("ICU", func(t *testing.T) { icuOrder(t, server) })
	t.Run("names", func(t *testing.T) { names(t, fresh(t), `CREATE SCHEMA "s.x"`, `"s.x"`, `"`) })
}

func suitePostgres(t *testing.T, server *connectortest.Server) {
	db := openPostgres(t, server.URL)
	execute(t, db, "SET timezone = 'UTC'")
	want := events(t, db, "timestamptz")
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t *testing.T, h *streamtest.Host) stream.Source {
			return newSource(t, h, func(o *table.Options) {
				o.Postgres, o.Table, o.OrderBy = server.URL, "events", []string{"at", "id"}
			})
		},
		Want: [][]string{want},
	})
}

// TestMariaDB runs all tests that need a real server.
func TestMariaDB(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "mariadb", "mariadb-install-db")
	fresh := func(t *testing.T) fixture { return mysqlFixture(t, server) }
	t.Run("suite", func(t *testing.T) {
		w := fresh(t)
		want := events(t, w.db, "datetime")
		connectortest.Source(t, connectortest.SourceCase{
			New: func(t *testing.T, h *streamtest.Host) stream.Source {
				return newSource(t, h, func(o *table.Options) {
					w.set(o)
					o.Table, o.OrderBy, o.Zone, o.Lag = "events", []string{"at", "id"}, "UTC",
						new(time.Millisecond)
				})
			},
			Want: [][]string{want},
		})
	})
	t.Run("row in the past", func(t *testing.T) {
		t.Parallel()
		pastRow(t, fresh(t))
	})
	t.Run("reused keys", func(t *testing.T) { lowersAutoIncrement(t, fresh(t)) })
	t.Run("refused", func(t *testing.T) { refused(t, "mysql", fresh) })
	t.Run("stopped", func(t *testing.T) { stopped(t, "mysql", fresh) })
	t.Run("wide split", func(t *testing.T) {
		wideSplit(t, fresh(t), "bigint unsigned PRIMARY KEY); "+
			"INSERT INTO wide VALUES (0), (9223372036854775808)",
			"has the value 9223372036854775808")
	})
	t.Run("decimals", func(t *testing.T) { decimals(t, fresh(t)) })
	t.Run("autocommit", func(t *testing.T) { autocommit(t, fresh(t)) })
	t.Run("bytes and texts", func(t *testing.T) { bytesAndTexts(t, fresh(t)) })
	t.Run("names", func(t *testing.T) { names(t, fresh(t), "", "", "`") })
	t.Run("name of the database", func(t *testing.T) { databaseName(t, fresh(t), server) })
}

// mysqlFixtures counts the databases that mysqlFixture has created.
var mysqlFixtures atomic.Int32

// mysqlFixture creates a database at the server.
func mysqlFixture(t *testing.T, server *connectortest.Server) fixture {
	t.Helper()
	name := fmt.Sprintf("test_%d", mysqlFixtures.Add(1))
	connectortest.Execute(t, connectortest.OpenDatabase(t, "mysql", server.URL),
		"CREATE DATABASE "+name)
	url := strings.TrimSuffix(server.URL, "test") + name
	db := connectortest.OpenDatabase(t, "mysql", url+"?multiStatements=true")
	return fixture{db, func(o *table.Options) { o.MySQL = url }}
}

func openPostgres(t testing.TB, url string) *sql.DB {
	t.Helper()
	db := connectortest.OpenDatabase(t, "pgx", url)
	db.SetMaxOpenConns(1)
	return db
}
