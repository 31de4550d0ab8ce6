package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// lines returns n rows of 1 MiB.
func lines(n int) (rows [][]field) {
	text := strings.Repeat("0123456789abcdef", 1<<16)
	for range n {
		rows = append(rows, []field{{"message", stream.Text, text}})
	}
	return rows
}

// idleHost starts no goroutines that prepare lanes after Load.
type idleHost struct{ *streamtest.Host }

func (h idleHost) Go(name string, run func(context.Context) error) {
	if !strings.HasPrefix(name, "postgres ahead") {
		h.Host.Go(name, run)
	}
}

// begun opens a sink. Its lanes do nothing in the background: they neither connect nor prepare
// statements before the first delivery. change may modify the sink before it connects.
func begun(t *testing.T, d *database, change func(*postgres.Sink)) *opened {
	t.Helper()
	o := d.options("lines")
	o.OnNewField = "ignore"
	s := &opened{host: connectortest.NewHost(t)}
	s.Sink = newSink(t, o, idleHost{s.host})
	t.Cleanup(func() { s.Close() })
	lanes := func(l []stream.Lane) { s.lanes = l }
	if err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "main", Once: true,
		Lanes: lanes}); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s.Sink)
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCopy checks both ways of sending rows: directly to the socket, and through the driver. It
// locks the table, so that the server does not read, and cancels a Deliver. The Deliver must
// return, and the server must stop waiting for the table. When the batch is then delivered twice,
// its rows must be in the table once.
func TestCopy(t *testing.T) {
	t.Parallel()
	const rows, sum = "12", "SELECT count(*)::text FROM lines WHERE length(message) = 1 << 20"
	errEnough := errors.New("enough")
	server := server.Get(t)
	for name, change := range map[string]func(*postgres.Sink){"plain": nil,
		"disguised": postgres.Disguise} {
		t.Run(name, func(t *testing.T) {
			d := fresh(t, server)
			d.exec(t, "CREATE TABLE lines (message text)")
			s := begun(t, d, change)
			b := s.batch(lines(12)...)
			if err := b.Encode(s.Sink); err != nil {
				t.Fatal(err)
			}
			d.exec(t, "BEGIN")
			d.exec(t, "LOCK TABLE lines IN ACCESS EXCLUSIVE MODE")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errEnough)
			defer cancel()
			_, err := s.lanes[0].Worker.Deliver(ctx, stream.Attempt{Value: b})
			if err == nil || ctx.Err() == nil {
				t.Fatalf("nothing was taken, and Deliver says %v", err)
			}
			waits := []string{""}
			for tries := 0; tries < 400 && !slices.Equal(waits, []string{"0"}); tries++ { // 20 s
				waits = d.column(t, "SELECT count(l.pid)::text FROM pg_sleep(0.05) "+
					"LEFT JOIN pg_locks l ON relation = 'lines'::regclass AND NOT granted")
			}
			if !slices.Equal(waits, []string{"0"}) {
				t.Errorf("%s backends wait for the table, and nobody for them", waits)
			}
			d.exec(t, "ROLLBACK")
			for range 2 {
				if err := s.deliver(t, b); err != nil {
					t.Fatal(err)
				}
			}
			if got := d.column(t, sum); !slices.Equal(got, []string{rows}) {
				t.Errorf("%s rows, want %s", got, rows)
			}
		})
	}
}

// TestCopyRefused checks that the connection stays usable after the server has refused a row in the
// middle of a batch.
func TestCopyRefused(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE lines (message text CHECK (message <> 'no'), _extra json)")
	s := begun(t, d, nil)
	rows := lines(6)
	rows[1][0].text = "no"
	if err := s.deliver(t, s.batch(rows...)); err == nil ||
		!strings.Contains(err.Error(), "23514") {
		t.Errorf("refused with %v", err)
	}
	if err := s.deliver(t, s.batch(lines(1)...)); err != nil {
		t.Error(err)
	}
	if got := d.column(t, "SELECT count(*)::text FROM lines"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%s rows, want 1", got)
	}
}

// TestCopyWarned uses a trigger that warns for each row and fills the socket buffers, so that the
// server blocks until its messages are read. It checks that the rows are accepted or refused
// nevertheless, and that the connection stays usable.
func TestCopyWarned(t *testing.T) {
	t.Parallel()
	const rows, bound = 16_000, 20 * time.Second
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE lines (message text)")
	d.exec(t, `CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.message = 'no' THEN RAISE EXCEPTION 'not this one'; END IF;
		RAISE WARNING '%', repeat('w', 1000); RETURN NEW; END $$`)
	d.exec(t, "CREATE TRIGGER warn BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION warn()")
	s := begun(t, d, nil)
	deliver := func(list [][]field) error {
		b := s.batch(list...)
		if err := b.Encode(s.Sink); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		_, err := s.lanes[0].Worker.Deliver(ctx, stream.Attempt{Value: b})
		return err
	}
	list := make([][]field, rows)
	for i := range list {
		list[i] = []field{{"message", stream.Text, strings.Repeat("0123456789abcdef", 64)}}
	}
	list[rows*3/4] = []field{{"message", stream.Text, "no"}}
	if err := deliver(list); err == nil || !strings.Contains(err.Error(), "P0001") {
		t.Errorf("refused with %v", err)
	}
	list[rows*3/4] = list[0]
	if err := deliver(list); err != nil {
		t.Error(err)
	}
	if got := d.column(t, "SELECT count(*)::text FROM lines"); !slices.Equal(got, []string{strconv.Itoa(rows)}) {
		t.Errorf("%s rows, want %d", got, rows)
	}
}

// TestFoldedMeanwhile delivers a batch again. While this attempt checks whether the batch was
// delivered, Compact merges the settled spans of the batch into the mark, the stored watermark of
// the partition. The batch must not be written again.
func TestFoldedMeanwhile(t *testing.T) {
	t.Parallel()
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE lines (message text)")
	s := begun(t, d, postgres.GuardEnter)
	b := s.batch([]field{{"message", stream.Text, "once"}})
	if err := s.deliver(t, b); err != nil {
		t.Fatal(err)
	}
	lock := fmt.Sprintf("(%d)", postgres.EnterLock)
	d.exec(t, "SELECT pg_advisory_lock"+lock)
	second := make(chan error, 1)
	go func() {
		_, err := s.lanes[1].Worker.Deliver(t.Context(), stream.Attempt{Value: b})
		second <- err
	}()
	waiting := fmt.Sprintf("SELECT pid::text FROM pg_locks WHERE locktype = 'advisory' AND "+
		"classid = 0 AND objid = %d AND NOT granted", postgres.EnterLock)
	for len(d.column(t, waiting)) == 0 {
		select {
		case err := <-second:
			t.Fatalf("the second attempt did not check the marks: %v", err)
		default:
		}
	}
	last := b.Spans[len(b.Spans)-1]
	if err := s.Compact(t.Context(), []stream.Mark{{Part: *last.Part, Watermark: last.To}}); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "SELECT pg_advisory_unlock"+lock)
	if err := <-second; err != nil {
		t.Errorf("the second attempt: %v", err)
	}
	if got := d.column(t, "SELECT count(*)::text FROM lines"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%s rows, want 1", got)
	}
}
