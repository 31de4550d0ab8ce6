package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/connectortest/partitions"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/stream"
)

// TestPartitionLedger checks a ledger that several processes use for one table.
func TestPartitionLedger(t *testing.T) {
	server := server.Get(t)
	partitions.Ledger(t, func(t *testing.T) partitions.Receiver { return shared(t, server) })
}

// TestPartitionsMove checks that several engines write each record of a broker once.
func TestPartitionsMove(t *testing.T) { partitions.Moves(t, shared(t, server.Get(t)), 1) }

// TestInterruptedCreate checks that the ledger's tables are all created after a process has failed
// to create the second one.
func TestInterruptedCreate(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE lines (message text)")
	d.exec(t, "CREATE TYPE penstock_marks AS ENUM ('taken')")
	s := made(t, d.options("lines"), connectortest.NewHost(t))
	t.Cleanup(func() { s.Close() })
	options := stream.SinkOptions{
		Pipeline: "p", Route: "main", Once: true, Lanes: func([]stream.Lane) {},
	}
	if err := s.Open(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // Load tries again
	defer cancel()
	if _, err := s.Load(short); err == nil {
		t.Fatal("Load succeeds although the name of a table is taken")
	}
	d.exec(t, "DROP TYPE penstock_marks")
	if _, err := s.Load(t.Context()); err != nil {
		t.Error(err)
	}
}

// shared returns a table for several sinks.
func shared(t *testing.T, s *connectortest.Server) partitions.Receiver {
	d := fresh(t, s)
	d.exec(t, "CREATE TABLE lines (message text, _extra json)")
	return partitions.Receiver{
		New: func(h stream.Host) (partitions.Sink, error) {
			o := d.options("lines")
			o.Workers = 2
			return postgres.New(o, h)
		},
		Received: func(t testing.TB) []string { return d.column(t, "SELECT message FROM lines") },
		Block: func(t testing.TB) (release func()) {
			tx, err := d.conn.Begin(context.Background())
			if err == nil {
				_, err = tx.Exec(context.Background(), "LOCK TABLE lines IN EXCLUSIVE MODE")
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := tx.Rollback(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		Evicts: 10 * time.Second,
	}
}
