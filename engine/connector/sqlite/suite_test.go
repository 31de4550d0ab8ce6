package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
)

func TestSuite(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{ExactlyOnce: true, Start: func(t *testing.T) connectortest.Receiver {
		o := *sqlite.DefaultOptions()
		o.Path = filepath.Join(t.TempDir(), "made", "a file?#%.db")
		o.Table = "lines"
		return connectortest.Receiver{
			New: func(t *testing.T, h *connectortest.Host) penstock.Sink { return made(t, o, h) },
			Received: func(t *testing.T) []string {
				return connectortest.Column(t, connectortest.OpenSQLite(t, o.Path), `SELECT message FROM lines ORDER BY rowid`)
			},
		}
	}})
}

func made(t testing.TB, o sqlite.Options, h penstock.Host) *sqlite.Sink {
	t.Helper()
	s, err := sqlite.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
