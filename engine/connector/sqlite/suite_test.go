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
	connectortest.Sink(t, connectortest.SinkCase{ExactlyOnce: true, Start: func(t *testing.T) connectortest.Receiver {
		o := *sqlite.DefaultOptions()
		o.Path = filepath.Join(t.TempDir(), "made", "a file?#%.db")
		o.Table = "lines"
		return connectortest.Receiver{
			New: func(t *testing.T, h *streamtest.Host) stream.Sink { return made(t, o, h) },
			Received: func(t *testing.T) []string {
				return column(t, o.Path, `SELECT message FROM lines ORDER BY rowid`)
			},
		}
	}})
}

func made(t testing.TB, o sqlite.Options, h stream.Host) *sqlite.Sink {
	t.Helper()
	s, err := sqlite.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// column reads the first column of a query as text, from a connection of its own.
func column(t testing.TB, path, query string) []string {
	t.Helper()
	return connectortest.Column(t, connectortest.OpenSQLite(t, path), query)
}

// execute is of another program that uses the file.
func execute(t testing.TB, path, query string) {
	t.Helper()
	connectortest.Execute(t, connectortest.OpenSQLite(t, path), query)
}
