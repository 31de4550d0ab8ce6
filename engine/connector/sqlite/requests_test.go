package sqlite_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest/requests"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
	"github.com/penstock-io/penstock/stream"
)

// TestRequestLedger checks a ledger with requests that several processes receive.
func TestRequestLedger(t *testing.T) {
	requests.Ledger(t, func(t *testing.T) requests.Receiver {
		o := options(t, "one")
		execute(t, o.Path, `PRAGMA journal_mode = WAL`)
		execute(t, o.Path, `CREATE TABLE one (message TEXT)`)
		execute(t, o.Path, `CREATE TABLE two (message TEXT)`)
		return requests.Receiver{
			New: func(h stream.Host, table, ledger string) (requests.Sink, error) {
				o := o
				o.Table, o.Ledger = table, ledger
				return sqlite.New(o, h)
			},
			Column: func(t testing.TB, query string) []string { return column(t, o.Path, query) },
		}
	})
}
