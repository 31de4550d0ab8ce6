package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// rendezvous blocks callers until a number of them are present, and records the maximum number of
// concurrent callers.
type rendezvous struct {
	mu      sync.Mutex // guards the fields below
	want    int        // 1 means that callers do not wait
	present int
	most    int
	arrived chan struct{} // closed when the last one has arrived
}

func (m *rendezvous) pass(ctx context.Context) error {
	m.mu.Lock()
	if m.arrived == nil {
		m.arrived = make(chan struct{})
	}
	m.present++
	m.most = max(m.most, m.present)
	together := m.arrived
	if m.present == m.want {
		m.present, m.arrived = 0, nil
		close(together)
	}
	m.mu.Unlock()
	select {
	case <-together:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// numbers is a database in which each table has the rows 1 to rowsOf.
type numbers struct {
	rowsOf     int64
	rendezvous *rendezvous
	block      string // reading this table blocks until the context ends
	fail       func(table string) error
}

var errOther = errors.New("the server is broken")

func (d *numbers) describe(_ context.Context, s subject) (*relation, error) {
	return &relation{
		name: s.String(), plain: s.name, table: true, unique: [][]string{{"id"}}, primary: true,
		columns: []column{{name: "id", decl: "bigint", key: keyInteger, kind: numberValue}},
	}, nil
}

func (d *numbers) list(context.Context) ([]string, error) { return nil, nil }

func (d *numbers) key(dst []byte, r *relation, n int64) []byte {
	return r.keys.append(r.keys.begin(dst), 0, keyValue{kind: keyInteger, n: n})
}

func (d *numbers) observe(_ context.Context, r *relation, q rowQuery) (observation, error) {
	last := string(d.key(nil, r, d.rowsOf))
	if last <= q.after {
		last = ""
	}
	return observation{last: last}, nil
}

func (d *numbers) hasNullKey(context.Context, *relation) (bool, error) { return false, nil }

func (d *numbers) passed(_ context.Context, _ *relation, waiting []observation) (int, error) {
	return len(waiting), nil
}

func (d *numbers) rows(ctx context.Context, r *relation, q rowQuery, f *filling) error {
	if d.block == r.plain {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if d.fail != nil {
		if err := d.fail(r.plain); err != nil {
			return err
		}
	}
	if err := d.rendezvous.pass(ctx); err != nil {
		return err
	}
	for n := int64(1); n <= d.rowsOf; n++ {
		key := d.key(nil, r, n)
		if string(key) <= q.after || string(key) > q.upTo {
			continue
		}
		if !f.add(key, func() { f.maker.value(numberValue, fmt.Append(nil, n)) }) {
			break
		}
	}
	return nil
}

func (d *numbers) keys(context.Context, *relation, rowQuery, func([]byte) bool) error { return nil }

func (d *numbers) lastGiven(context.Context,
	*relation) (int64, bool, error) {
	return 0, false, nil
}

func (d *numbers) wait(ctx context.Context, limit time.Duration) (bool, error) {
	return false, retry.Sleep(ctx, limit)
}
func (d *numbers) transient(err error) bool { return !errors.Is(err, errOther) }
func (d *numbers) close() error             { return nil }

// numbered opens a reader of the given number of tables.
func numbered(t *testing.T, d *numbers, connections, tables int, once bool) stream.Reader {
	t.Helper()
	o := DefaultOptions()
	o.SQLite, o.Connections, o.Rescan, o.Poll = "numbers", connections, 0, 10*time.Millisecond
	for i := range tables {
		o.Tables = append(o.Tables, fmt.Sprintf("t%d", i))
	}
	s, err := New(*o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	s.(*source).connect = func() (database, error) { return d, nil }
	r, err := s.Open(t.Context(), stream.OpenOptions{
		Once: once, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// readTo reads until it has a given number of rows, or until an error occurs. It returns the number
// of rows of each partition, and the partitions in the order in which their rows were read.
func readTo(t *testing.T, r stream.Reader,
	rows int) (got map[string]int, order []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second,
		errors.New("nothing more comes"))
	defer cancel()
	got = make(map[string]int)
	for rows > 0 {
		b := stream.NewBatch(stream.BatchLimits{Records: 4})
		err = r.Read(ctx, b)
		for _, s := range b.Spans {
			got[s.Part.ID] += b.Origins
			order = append(order, s.Part.ID)
			rows -= b.Origins
		}
		if err != nil {
			return got, order, err
		}
	}
	return got, order, nil
}

// TestReadsAtATime checks that as many partitions are read concurrently as there are connections.
// The queries of the fake database wait for each other, so a sequential reader would hang.
func TestReadsAtATime(t *testing.T) {
	for _, c := range []struct{ connections, tables, together int }{{3, 6, 3}, {1, 4, 1},
		{4, 2, 2}} {
		m := &rendezvous{want: c.together}
		d := &numbers{rowsOf: 8, rendezvous: m}
		got, _, err := readTo(t, numbered(t, d, c.connections, c.tables, true), 1000)
		if err != io.EOF {
			t.Errorf("%+v: %v after %v", c, err, got)
		}
		for part, n := range got {
			if n != 8 {
				t.Errorf("%+v: %d rows of %s, want 8", c, n, part)
			}
		}
		if len(got) != c.tables || m.most != c.together {
			t.Errorf("%+v: %d tables were read, at most %d at a time", c, len(got), m.most)
		}
	}
}

// TestFiniteOrder checks that a finite run returns its batches in the same order, whichever
// connection is faster.
func TestFiniteOrder(t *testing.T) {
	var first []string
	for range 20 {
		d := &numbers{rowsOf: 30, rendezvous: &rendezvous{want: 1}}
		_, order, err := readTo(t, numbered(t, d, 4, 7, true), 1000)
		if err != io.EOF {
			t.Fatal(err)
		}
		if first == nil {
			first = order
		}
		if !slices.Equal(order, first) {
			t.Fatalf("batches of %v\nand then of  %v", first, order)
		}
	}
}

// TestSlowPartition checks that a table that does not respond stops no other table, and that
// closing does not wait for it.
func TestSlowPartition(t *testing.T) {
	d := &numbers{rowsOf: 40, rendezvous: &rendezvous{want: 1}, block: "t1"}
	r := numbered(t, d, 2, 3, false)
	got, _, err := readTo(t, r, 80)
	if err != nil || got["t0"] != 40 || got["t2"] != 40 {
		t.Errorf("%v, %v", got, err)
	}
	began := time.Now()
	if err := r.Close(); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("Close: %v after %v", err, time.Since(began))
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close once more: %v", err)
	}
}

// TestSlowQuery checks that a query that does not end is logged once.
func TestSlowQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		d := &numbers{rowsOf: 4, rendezvous: &rendezvous{want: 1}, block: "t1"}
		r := numbered(t, d, 2, 2, false)
		r.(*reader).s.h = logged{r.(*reader).s.h, slog.New(slog.NewTextHandler(&log, nil))}
		if _, _, err := readTo(t, r, 4); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*slowStep)
		defer cancel()
		if err := r.Read(ctx, stream.NewBatch(stream.BatchLimits{Records: 4})); ctx.Err() == nil {
			t.Errorf("Read: %v", err)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "table=t1") {
			t.Errorf("logged %q, want t1 once", text)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowReaderIsNoSlowQuery checks that a query that has ended is not logged as slow, even if its
// result was not needed for a long time.
func TestSlowReaderIsNoSlowQuery(t *testing.T) {
	for range 20 { // a select with several ready channels chooses one at random
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			d := &numbers{rowsOf: 40, rendezvous: &rendezvous{want: 1}}
			r := numbered(t, d, 2, 2, false)
			r.(*reader).s.h = logged{r.(*reader).s.h, slog.New(slog.NewTextHandler(&log, nil))}
			for range 4 {
				if _, _, err := readTo(t, r, 4); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * slowStep)
			}
			if log.Len() > 0 {
				t.Errorf("logged %q", log.String())
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// logged is a host with another log.
type logged struct {
	stream.Host
	log *slog.Logger
}

func (l logged) Log() *slog.Logger { return l.log }

// TestFailures checks that transient errors are retried without repeats, and that others end the
// reader.
func TestFailures(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	d := &numbers{rowsOf: 20, rendezvous: &rendezvous{want: 1}, fail: func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls%3 == 1 {
			return errors.New("it stumbles")
		}
		return nil
	}}
	got, _, err := readTo(t, numbered(t, d, 3, 3, true), 1000)
	if err != io.EOF || got["t0"] != 20 || got["t1"] != 20 || got["t2"] != 20 {
		t.Errorf("%v, %v", got, err)
	}
	d = &numbers{rowsOf: 20, rendezvous: &rendezvous{want: 1}, fail: func(table string) error {
		if table == "t1" {
			return errOther
		}
		return nil
	}}
	if _, _, err := readTo(t, numbered(t, d, 3, 3, true), 1000); err == nil ||
		!strings.Contains(err.Error(), errOther.Error()) {
		t.Errorf("%v, want %v", err, errOther)
	}
}

// TestCheckIntervals checks the waits at the end of a table. They are long while nothing comes, and
// short after new rows. While other transactions are open, they are at most openWait.
func TestCheckIntervals(t *testing.T) {
	pace := pacing(5 * time.Second)
	var at checkSchedule
	now := time.Duration(0)
	for range 30 {
		at.notFound(now, pace, false, 0)
		if wait := at.due - now; wait < 50*time.Millisecond || wait > 5*time.Second {
			t.Fatalf("waits %v", wait)
		}
		now = at.due
	}
	if at.interval != 5*time.Second {
		t.Errorf("after a long time without new rows it waits %v, want 5s", at.interval)
	}
	at.notFound(now, pace, true, 0)
	if wait := at.due - now; wait != openWait {
		t.Errorf("while a transaction is open it waits %v, want %v", wait, openWait)
	}
	at.notFound(now, pace, true, 30*time.Millisecond)
	if wait := at.due - now; wait != 30*time.Millisecond {
		t.Errorf("when the lag ends in 30ms it waits %v", wait)
	}
	at.found()
	if at.notFound(now, pace, false, 0); at.due-now != 50*time.Millisecond {
		t.Errorf("after something new it waits %v, want 50ms", at.due-now)
	}
}
