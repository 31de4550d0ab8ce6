package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
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

// TestChangedColumnOfStoredRequest checks that rows for the former type of a column are not written
// after another process has stored a part of the batch.
func TestChangedColumnOfStoredRequest(t *testing.T) {
	t.Parallel()
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE one (message text)")
	deliver := func(own string, lines, dropped int, changed func()) error {
		s := newSink(t, d.options("one"), connectortest.NewHost(t))
		var lane stream.Lane
		o := stream.SinkOptions{Pipeline: "p", Route: "r", Own: own, Keep: time.Hour}
		o.Lanes = func(l []stream.Lane) { lane = l[0] }
		if err := s.Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		b := stream.NewBatch(stream.BatchLimits{})
		for range lines {
			b.Data = append(b.Data, "line\n"...)
		}
		span := stream.Span{Part: &stream.Partition{ID: stream.RequestPrefix + "r1"},
			Bytes: len(b.Data)}
		span.To.Num, b.Origins = int64(len(b.Data)), lines
		b.Spans = append(b.Spans, span)
		b.Split()
		for i := range dropped {
			b.Drop(i)
		}
		if err := b.Encode(s); err != nil {
			t.Fatal(err)
		}
		changed()
		_, err := lane.Worker.Deliver(t.Context(), stream.Attempt{Value: b})
		return err
	}
	if err := deliver("intake-a", 1, 0, func() {}); err != nil {
		t.Fatal(err)
	}
	err := deliver("intake-b", 2, 1, func() {
		d.exec(t, "ALTER TABLE one ALTER message TYPE bytea USING message::bytea")
	})
	if _, ok := errors.AsType[*stream.Misconfigured](err); !ok {
		t.Errorf("a column of another type: %v, want misconfigured", err)
	}
}
