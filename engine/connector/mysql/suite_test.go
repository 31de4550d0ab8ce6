package mysql_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/connectortest/partitions"
	"github.com/penstock-io/penstock/engine/connector/connectortest/requests"
	"github.com/penstock-io/penstock/engine/connector/mysql"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// database is a separate schema on the server that the tests of this package share.
type database struct {
	url string
	db  *sql.DB
}

var schemas atomic.Int64

func fresh(t testing.TB, s *connectortest.Server) *database {
	t.Helper()
	name := fmt.Sprintf("s%d", schemas.Add(1))
	connectortest.Execute(t, connectortest.OpenDatabase(t, "mysql", s.URL),
		"CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
	d := &database{url: s.URL[:len(s.URL)-len("test")] + name}
	d.db = connectortest.OpenDatabase(t, "mysql", d.url+"?time_zone=%27%2B00:00%27")
	return d
}

func (d *database) exec(t testing.TB, query string) { connectortest.Execute(t, d.db, query) }

func (d *database) column(t testing.TB, query string) []string {
	return connectortest.Column(t, d.db, query)
}

func (d *database) options(table string) mysql.Options {
	o := *mysql.DefaultOptions()
	o.URL, o.Table = d.url, table
	return o
}

// TestMariaDB runs all tests that need a real server.
func TestMariaDB(t *testing.T) {
	server := connectortest.StartServer(t, "mariadb", "mariadb-install-db")
	t.Run("suite", func(t *testing.T) { suite(t, server, 4) })
	t.Run("suite over one connection", func(t *testing.T) { suite(t, server, 1) })
	t.Run("ledger by partition", func(t *testing.T) {
		partitions.Ledger(t, func(t *testing.T) partitions.Receiver { return shared(t, server) })
	})
	t.Run("ledger with requests", func(t *testing.T) {
		requests.Ledger(t, func(t *testing.T) requests.Receiver { return tables(t, server) })
	})
	t.Run("partitions move", func(t *testing.T) { partitions.Moves(t, shared(t, server), 1) })
	t.Run("refused records", func(t *testing.T) { refused(t, server) })
	t.Run("a table vanishes", func(t *testing.T) { vanishes(t, server) })
	t.Run("upsert", func(t *testing.T) { upsert(t, server) })
	t.Run("audit", func(t *testing.T) { audit(t, server) })
	t.Run("values", func(t *testing.T) { values(t, server) })
	t.Run("existing tables", func(t *testing.T) { existing(t, server) })
	t.Run("another unique index", func(t *testing.T) { otherIndex(t, server) })
	t.Run("exact values", func(t *testing.T) { exact(t, server) })
	t.Run("restarts", func(t *testing.T) { restarted(t, server) })
	t.Run("times", func(t *testing.T) { times(t, server) })
	t.Run("names", func(t *testing.T) { names(t, server) })
	t.Run("keys", func(t *testing.T) { keys(t, server) })
	t.Run("truth values", func(t *testing.T) { truthValues(t, server) })
	t.Run("bits", func(t *testing.T) { bits(t, server) })
	t.Run("points", func(t *testing.T) { points(t, server) })
	t.Run("whole record", func(t *testing.T) { wholeRecord(t, server) })
	t.Run("definitions", func(t *testing.T) { definitions(t, server) })
	t.Run("unfit records", func(t *testing.T) { unfit(t, server) })
	t.Run("sessions after refusals", func(t *testing.T) { keptSession(t, server) })
	t.Run("session of an audit", func(t *testing.T) { auditSession(t, server) })
	t.Run("idle connections", func(t *testing.T) { idle(t, server) })
	t.Run("read-only server", func(t *testing.T) { readOnly(t, server) })
}

// shared returns a table for several sinks.
func shared(t *testing.T, server *connectortest.Server) partitions.Receiver {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE heard (message longtext)")
	return partitions.Receiver{
		New: func(h stream.Host) (partitions.Sink, error) {
			o := d.options("heard")
			o.Workers = 2
			return mysql.New(o, h)
		},
		Received: func(t testing.TB) []string { return d.column(t, "SELECT message FROM heard") },
	}
}

// tables returns two tables for several sinks.
func tables(t *testing.T, server *connectortest.Server) requests.Receiver {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE one (message longtext)")
	d.exec(t, "CREATE TABLE two (message longtext)")
	return requests.Receiver{
		New: func(h stream.Host, table, ledger string) (requests.Sink, error) {
			o := d.options(table)
			o.Workers, o.Ledger = 2, ledger
			return mysql.New(o, h)
		},
		Column:    func(t testing.TB, query string) []string { return d.column(t, query) },
		Deadlocks: true, // InnoDB locks gaps, too
	}
}

func suite(t *testing.T, server *connectortest.Server, workers int) {
	connectortest.Sink(t, connectortest.SinkCase{
		ExactlyOnce: true,
		Start: func(t *testing.T) connectortest.Receiver {
			d := fresh(t, server)
			d.exec(t, "CREATE TABLE heard (n int AUTO_INCREMENT PRIMARY KEY, message longtext)")
			return connectortest.Receiver{
				New: func(t *testing.T, h *streamtest.Host) stream.Sink {
					o := d.options("heard")
					o.Workers = workers
					s, err := mysql.New(o, h)
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				Received: func(t *testing.T) []string { return d.column(t, "SELECT message FROM heard ORDER BY n") },
			}
		},
	})
}
