package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// server is shared by the tests of this package, except for tests that stop the server.
var server = connectortest.Shared{Name: "postgres", Program: "psql"}

func TestMain(m *testing.M) { os.Exit(server.Run(m)) }

// database is a separate schema on the shared server.
type database struct {
	url    string
	schema string
	conn   *pgx.Conn
}

var schemas atomic.Int64

// fresh creates an empty schema.
func fresh(t testing.TB, s *connectortest.Server) *database {
	t.Helper()
	d := connect(t, s.URL)
	d.schema = fmt.Sprintf("s%d", schemas.Add(1))
	d.exec(t, "CREATE SCHEMA "+d.schema)
	d.exec(t, "SET search_path = "+d.schema)
	return d
}

func connect(t testing.TB, url string) *database {
	t.Helper()
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return &database{url: url, conn: c}
}

func (d *database) exec(t testing.TB, sql string) {
	t.Helper()
	if _, err := d.conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// column returns the first column of a query, which must be text.
func (d *database) column(t testing.TB, query string) []string {
	t.Helper()
	rows, err := d.conn.Query(context.Background(), query, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}

func (d *database) options(table string) postgres.Options {
	o := *postgres.DefaultOptions()
	o.URL, o.Table = d.url, d.schema+"."+table
	return o
}

func newSink(t testing.TB, o postgres.Options, h stream.Host) *postgres.Sink {
	t.Helper()
	s, err := postgres.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) {
	t.Parallel()
	server := server.Get(t)
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			connectortest.Sink(t, connectortest.SinkCase{ExactlyOnce: true,
				Start: func(t *testing.T) connectortest.Receiver {
					d := fresh(t, server)
					o := d.options("lines")
					o.Workers = workers
					// n records the order of the rows; otherwise the sink creates the table
					if workers == 1 {
						d.exec(t, "CREATE TABLE lines (n bigserial, message text, _extra json)")
					}
					return connectortest.Receiver{
						New: func(t *testing.T,
							h *streamtest.Host) stream.Sink {
							return newSink(t, o, h)
						},
						Received: func(t *testing.T) []string {
							if workers == 1 {
								return d.column(t, "SELECT message FROM lines ORDER BY n")
							}
							// in case nothing was delivered yet
							d.exec(t, "CREATE TABLE IF NOT EXISTS lines (message text)")
							return d.column(t, "SELECT message FROM lines")
						},
					}
				}})
		})
	}
}

func TestAudit(t *testing.T) {
	for _, mode := range []string{"append", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			d := fresh(t, server.Get(t))
			o := d.options("audited")
			o.Mode = mode
			d.exec(t, "CREATE TABLE audited (id varchar(9), n numeric, i bigint, b boolean, "+
				"j json, t text, _extra jsonb)")
			if mode == "upsert" {
				o.Key = []string{"id"}
				d.exec(t, "CREATE UNIQUE INDEX ON audited (id)")
			}
			connectortest.Audit(t, connectortest.AuditCase{
				Sink:   func(t *testing.T, h stream.Host) stream.Sink { return newSink(t, o, h) },
				Upsert: mode == "upsert",
				Exec:   func(t *testing.T, statement string) { d.exec(t, statement) },
			})
		})
	}
}
