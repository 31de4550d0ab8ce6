package postgres_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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

// TestChangedColumnOfStoredRequest delivers a batch after another process has stored a part of it.
// The type of a column changes between the encoding of the batch and its delivery. The encoded rows
// must not be written.
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

// TestMoreRequestsThanLoadReads checks that Load returns only the most recent requests, and that an
// older request is still recognized.
func TestMoreRequestsThanLoadReads(t *testing.T) {
	t.Parallel()
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE one (message text)")
	var lane stream.Lane
	load := func() []stream.Mark {
		t.Helper()
		s := newSink(t, d.options("one"), connectortest.NewHost(t))
		t.Cleanup(func() { s.Close() })
		o := stream.SinkOptions{Pipeline: "p", Route: "r", Own: "intake-a", Keep: time.Hour}
		o.Lanes = func(l []stream.Lane) { lane = l[0] }
		if err := s.Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		marks, err := s.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return marks
	}
	deliver := func() {
		t.Helper()
		b := stream.NewBatch(stream.BatchLimits{})
		b.Data = append(b.Data, "line\n"...)
		name := "request of " + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		span := stream.Span{Bytes: len(b.Data),
			Part: &stream.Partition{ID: stream.RequestPrefix + "r1", Name: name}}
		span.To.Num, b.Origins = int64(len(b.Data)), 1
		b.Spans = append(b.Spans, span)
		b.Split()
		if _, err := lane.Worker.Deliver(t.Context(), stream.Attempt{Value: b}); err != nil {
			t.Fatal(err)
		}
	}
	load()
	deliver()
	const limit = 131_072
	d.exec(t, fmt.Sprintf(`INSERT INTO penstock_marks
		SELECT route, 'request-x' || i, 'request of ' ||
		to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' by intake-b', 5, ''
		FROM penstock_marks, generate_series(1, %d) i`, limit))
	marks := load()
	if len(marks) != limit || slices.ContainsFunc(marks, func(m stream.Mark) bool {
		return m.Part.ID == stream.RequestPrefix+"r1"
	}) {
		t.Errorf("Load has returned %d requests, want %d without the oldest", len(marks), limit)
	}
	deliver()
	if got := d.column(t, "SELECT count(*)::text FROM one"); got[0] != "1" {
		t.Errorf("the table has %s rows, want 1", got[0])
	}
}

// TestSlowCopyIsNotSuspended checks when the sink ends the session of another process that holds
// locks which the sink needs. During a COPY, it ends the session only if no rows have arrived since
// the last check. If no COPY is running, it ends the session at once.
func TestSlowCopyIsNotSuspended(t *testing.T) {
	t.Parallel()
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE lines (message text)")
	s := open(t, d.options("lines"))
	evict := postgres.NewEvict(s.Sink)
	evicted := func(want int64, when string) {
		t.Helper()
		if got, err := evict(t.Context()); err != nil || got != want {
			t.Errorf("%s: %d sessions were ended, %v; want %d", when, got, err, want)
		}
	}
	waits := func(process *database, condition string) {
		query := fmt.Sprintf("SELECT count(*)::text FROM pg_stat_activity a WHERE pid = %d AND "+
			"wait_event = 'ClientRead'%s", process.conn.PgConn().PID(), condition)
		for d.column(t, query)[0] != "1" {
			if err := t.Context().Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	process := connect(t, d.url)
	claim := "INSERT INTO " + d.schema + ".penstock_marks VALUES ('r', 'p', '', 0, '')"
	rows, input := io.Pipe()
	copied := make(chan error, 1)
	process.exec(t, "BEGIN")
	process.exec(t, claim)
	go func() {
		_, err := process.conn.PgConn().CopyFrom(t.Context(), rows,
			"COPY "+d.schema+".lines FROM STDIN")
		rows.CloseWithError(err)
		copied <- err
	}()
	line := []byte(strings.Repeat("x", 99_999) + "\n")
	for sent := 0; sent < 2; {
		if _, err := input.Write(line); err != nil {
			t.Fatal(err)
		}
		sent++
		waits(process, fmt.Sprintf(" AND EXISTS (SELECT 1 FROM pg_stat_progress_copy p WHERE "+
			"p.pid = a.pid AND bytes_processed >= %d)", sent*len(line)))
		evicted(0, "after more rows")
	}
	evicted(1, "without more rows")
	for err := error(nil); err == nil; {
		_, err = input.Write(line)
	}
	if err := <-copied; err == nil {
		t.Error("the COPY has succeeded")
	}
	idle := connect(t, d.url)
	idle.exec(t, "BEGIN")
	idle.exec(t, claim)
	waits(idle, "")
	evicted(1, "idle in a transaction")
}
