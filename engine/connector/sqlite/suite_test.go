package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

func TestSuite(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{ExactlyOnce: true,
		Start: func(t *testing.T) connectortest.Receiver {
			o := *sqlite.DefaultOptions()
			o.Path = filepath.Join(t.TempDir(), "made", "a file?#%.db")
			o.Table = "lines"
			return connectortest.Receiver{
				New: func(t *testing.T, h *streamtest.Host) stream.Sink { return newSink(t, o, h) },
				Received: func(t *testing.T) []string {
					return column(t, o.Path, `SELECT message FROM lines ORDER BY rowid`)
				},
			}
		}})
}

func newSink(t testing.TB, o sqlite.Options, h stream.Host) *sqlite.Sink {
	t.Helper()
	s, err := sqlite.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// column returns the first column of a query as text, over a separate connection.
func column(t testing.TB, path, query string) []string {
	t.Helper()
	return connectortest.Column(t, connectortest.OpenSQLite(t, path), query)
}

// execute runs a statement over a separate connection, like another program.
func execute(t testing.TB, path, query string) {
	t.Helper()
	connectortest.Execute(t, connectortest.OpenSQLite(t, path), query)
}

func TestAudit(t *testing.T) {
	for _, mode := range []string{"append", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			o := *sqlite.DefaultOptions()
			o.Path, o.Table, o.Mode = filepath.Join(t.TempDir(), "a file?#%.db"), "audited", mode
			execute(t, o.Path, "CREATE TABLE audited (id TEXT COLLATE NOCASE, n, i INTEGER, "+
				"b BOOLEAN, j TEXT, t TEXT COLLATE NOCASE, _extra TEXT)")
			if mode == "upsert" {
				o.Key = []string{"id"}
				execute(t, o.Path, "CREATE UNIQUE INDEX k ON audited (id)")
			}
			connectortest.Audit(t, connectortest.AuditCase{
				Sink:   func(t *testing.T, h stream.Host) stream.Sink { return newSink(t, o, h) },
				Upsert: mode == "upsert",
				Exec:   func(t *testing.T, statement string) { execute(t, o.Path, statement) },
			})
		})
	}
}
