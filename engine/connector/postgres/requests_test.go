package postgres_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest/requests"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/stream"
)

// TestRequestLedger checks a ledger with requests that several processes receive.
func TestRequestLedger(t *testing.T) {
	t.Parallel()
	server := server.Get(t)
	requests.Ledger(t, func(t *testing.T) requests.Receiver {
		d := fresh(t, server)
		d.exec(t, "CREATE TABLE one (message text)")
		d.exec(t, "CREATE TABLE two (message text)")
		return requests.Receiver{
			New: func(h stream.Host, table, ledger string) (requests.Sink, error) {
				o := d.options(table)
				o.Workers, o.Ledger = 2, ledger
				return postgres.New(o, h)
			},
			Column: func(t testing.TB, query string) []string { return d.column(t, query) },
		}
	})
}
