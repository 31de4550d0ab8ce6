package sqlite_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest/partitions"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
	"github.com/penstock-io/penstock/stream"
)

// TestPartitionLedger checks a ledger that several processes use for one file.
func TestPartitionLedger(t *testing.T) { partitions.Ledger(t, shared) }

// TestPartitionsMove checks that several engines write each record of a broker once.
func TestPartitionsMove(t *testing.T) { partitions.Moves(t, shared(t), 1) }

// shared returns a file for several sinks.
func shared(t *testing.T) partitions.Receiver {
	o := options(t, "lines")
	execute(t, o.Path, `PRAGMA journal_mode = WAL`)
	execute(t, o.Path, `CREATE TABLE lines (message TEXT)`)
	return partitions.Receiver{
		New: func(h stream.Host) (partitions.Sink, error) { return sqlite.New(o, h) },
		Received: func(t testing.TB) []string {
			return column(t, o.Path, `SELECT message FROM lines`)
		},
	}
}
