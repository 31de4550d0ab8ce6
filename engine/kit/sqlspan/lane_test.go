package sqlspan_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// session is a connection to a callLog.
type session struct {
	*callLog
	number int
}

func (s session) Begin(_ context.Context, statements ...*sqlspan.Statement) error {
	return s.run("begin", statements)
}

func (s session) Run(_ context.Context, statements ...*sqlspan.Statement) error {
	if len(statements) == 0 {
		return nil
	}
	return s.run("run", statements)
}

func (s session) Commit(context.Context) error { return s.record("commit") }

// callLog is a database that records its calls and fails on request.
type callLog struct {
	lines    []string
	presence sqlspan.Presence
	fail     string // the call to fail
	made     int
	closed   int // number of a connection that the server has closed
	epoch    int64
}

var errBroken = errors.New("broken")

func (d *callLog) record(what string) error {
	d.lines = append(d.lines, what)
	if what == d.fail {
		return errBroken
	}
	return nil
}

// run records statements by their first words, and answers queries for the route.
func (d *callLog) run(verb string, statements []*sqlspan.Statement) error {
	for _, s := range statements {
		verb += " " + strings.SplitN(s.SQL, " ", 2)[0]
		s.Affected = 1
		if s.Dest != nil && strings.Contains(s.SQL, "epoch") {
			*s.Dest[0].(*int64), *s.Dest[1].(*int64) = sqlspan.Format, d.epoch
		}
	}
	return d.record(verb)
}

func (d *callLog) Connect(context.Context) (session, error) {
	d.made++
	return session{d, d.made}, d.record("connect")
}

func (d *callLog) Find(context.Context, session) error { return d.record("find") }

func (d *callLog) Transient(err error) bool { return false }

func (d *callLog) Alive(_ context.Context, c session) bool { return c.number != d.closed }

func (d *callLog) Restore(ctx context.Context, c session, err error) bool {
	_ = d.record("restore")
	return !errors.Is(err, errBroken)
}

func (d *callLog) Close(c session) { _ = d.record(fmt.Sprintf("close %d", c.number)) }

func (d *callLog) Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal) {
	return append(dst, "rows"...), nil
}

func (d *callLog) Prepare(context.Context, session, *stream.Batch) error {
	return d.record("prepare")
}

func (d *callLog) Enter(_ context.Context, _ session, b *stream.Batch,
	data bool) (sqlspan.Presence, error) {
	spans := sqlspan.Covering(nil, b.Spans)
	return d.presence, d.record(fmt.Sprintf("enter %d %v", len(spans), data))
}

func (d *callLog) Write(_ context.Context, _ session, _ *stream.Batch, data []byte) error {
	return d.record("write " + string(data))
}

// batchOf returns a batch of the given number of records in one span, and an empty span.
func batchOf(records int) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	part := &stream.Partition{ID: "p"}
	b.Data = []byte(strings.Repeat("a\n", records))
	b.Origins = records
	to := stream.Position{Num: int64(len(b.Data))}
	b.Spans = []stream.Span{
		{Part: part, Bytes: len(b.Data), Range: stream.Range{To: to}},
		{Part: part, Range: stream.Range{From: to, To: to}},
	}
	if records == 0 {
		b.Spans[0].To.Num = 5 // a span whose records were all dropped
	}
	b.Split()
	return b
}

// TestDeliver checks the order of calls, and that a batch in the ledger is not written.
func TestDeliver(t *testing.T) {
	for _, c := range []struct {
		records  int
		presence sqlspan.Presence
		fail     string
		want     string
	}{
		{2, sqlspan.None, "", "connect, prepare, enter 1 true, write rows, commit, restore"},
		{2, sqlspan.All, "", "connect, prepare, enter 1 true, restore"},
		{0, sqlspan.None, "", "connect, enter 1 false, commit, restore"},
		{2, sqlspan.None, "connect", "connect"},
		{2, sqlspan.None, "prepare", "connect, prepare, restore"},
		{2, sqlspan.None, "enter 1 true", "connect, prepare, enter 1 true, restore"},
		{2, sqlspan.None, "write rows", "connect, prepare, enter 1 true, write rows, restore"},
		{2, sqlspan.None, "commit", "connect, prepare, enter 1 true, write rows, commit, restore"},
	} {
		d := &callLog{presence: c.presence, fail: c.fail}
		lane := sqlspan.NewLane(sqlspan.Server[session](d))
		var scratch []byte
		err := lane.Do(t.Context(), 0, func(ctx context.Context, conn session) error {
			return sqlspan.Deliver(ctx, conn, sqlspan.Writer[session](d), nil, batchOf(c.records),
				&scratch)
		})
		if got := strings.Join(d.lines, ", "); got != c.want || (err != nil) != (c.fail != "") {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

// TestLane checks that one caller at a time uses the connection. The connection is reused until an
// error leaves its state unknown or the server closes it, and is not used after Close.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &callLog{}
		lane := sqlspan.NewLane(sqlspan.Server[session](d))
		var used []int
		use := func(err error) error {
			return lane.Do(t.Context(), 0, func(_ context.Context, c session) error {
				used = append(used, c.number)
				return err
			})
		}
		for _, err := range []error{nil, errors.New("refused"), errBroken, nil, nil} {
			if got := use(err); got != err {
				t.Errorf("Do: %v, want %v", got, err)
			}
		}
		if want := []int{1, 1, 1, 2, 2}; !slices.Equal(used, want) {
			t.Errorf("used connections %v, want %v", used, want)
		}
		d.closed = 2
		if err := use(nil); err != nil || used[len(used)-1] != 3 {
			t.Errorf("the server has closed connection 2: %v, used %v", err, used)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := time.Now()
		err := lane.Do(ctx, time.Second, func(inner context.Context, _ session) error {
			cancel(enough)
			if err := lane.Do(ctx, 0, nil); err != enough {
				t.Errorf("Do while another has the connection: %v, want the cause", err)
			}
			<-inner.Done()
			return inner.Err()
		})
		if err != enough || time.Since(begun) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		lane.Close()
		lane.Close()
		if err := use(nil); err != sqlspan.ErrStopped || d.lines[len(d.lines)-1] != "close 3" {
			t.Errorf("after Close: %v, %v", err, d.lines)
		}
	})
}

// host only has a log.
type host struct{}

func (host) Log() *slog.Logger {
	return slog.New(slog.DiscardHandler)
}
func (host) FS() vfs.FS                                          { return nil }
func (host) Go(name string, run func(ctx context.Context) error) {}
func (host) Fault(error)                                         {}
func (host) Count(name string, n int64)                          {}

// TestAwait checks that Await waits for a server that is not running. In a finite run it waits for
// at most a minute.
func TestAwait(t *testing.T) {
	transient := func(err error) bool { return errors.Is(err, errBroken) }
	for _, c := range []struct {
		once   bool
		fails  int
		fatal  bool
		ok     bool
		within time.Duration
	}{
		{false, 0, false, true, 0}, {false, 40, false, true, time.Hour},
		{true, 3, false, true, 10 * time.Second},
		{true, 1 << 30, false, false, time.Minute}, {false, 2, true, false, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := sqlspan.NewLedger(host{})
			b.Open(stream.SinkOptions{Pipeline: "p", Route: "r", Once: c.once}, "", "t", dialect)
			calls, begun := 0, time.Now()
			marks, err := b.Await(t.Context(), func(context.Context) ([]stream.Mark, error) {
				if calls++; calls <= c.fails {
					return nil, errBroken
				}
				if c.fatal {
					return nil, errors.New("no such database")
				}
				return []stream.Mark{{}}, nil
			}, transient)
			if (err == nil) != c.ok || len(marks) > 0 != c.ok || time.Since(begun) > c.within {
				t.Errorf("%+v: %v, %v after %v and %d calls", c, marks, err,
					time.Since(begun), calls)
			}
		})
	}
}

// dialect returns a dialect without SQL.
func dialect(string) sqlspan.Dialect {
	names := sqlspan.Beside(sqltable.Name{Table: "t"})
	return sqlspan.Dialect{Place: "the diary", Names: names, Bump: "BUMP", SetMark: "SET",
		InsertSpan: "ADD", Present: sqlspan.Statement{SQL: "PRESENT"}}
}

// TestFenced checks a ledger with the epoch of another process: each transaction fails, and Watch
// returns the reason. It also checks that a ledger of another format is refused.
func TestFenced(t *testing.T) {
	l := sqlspan.NewLedger(host{})
	l.Open(stream.SinkOptions{Pipeline: "p", Route: "r"}, "", "t", dialect)
	if l.Name != "p/r" || l.LedgerName() != `the diary, route "p/r"` {
		t.Errorf("the ledger is %q, %s", l.Name, l.LedgerName())
	}
	if l.Open(stream.SinkOptions{Pipeline: "p", Route: "r"}, "own", "t", dialect); l.Name != "own" {
		t.Errorf("the ledger is %q", l.Name)
	}
	d := &callLog{epoch: 4}
	s := session{d, 1}
	if _, err := l.Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(t.Context(), s); err != nil {
		t.Error(err)
	}
	if l.Note(errBroken) != errBroken || l.Note(nil) != nil {
		t.Error("Note changed an error")
	}
	d.epoch = 5
	for range 3 {
		if err := l.Note(fmt.Errorf("delivering: %w", l.Begin(t.Context(), s))); err == nil {
			t.Error("epoch 5 is taken for 4")
		}
	}
	if fenced, ok := errors.AsType[*sqlspan.FencedError](l.Watch(t.Context())); !ok ||
		fenced.Own != 4 || fenced.Seen != 5 {
		t.Error("nothing ends the route")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Watch(ctx); err != nil {
		t.Error(err)
	}
	d.lines = nil
	if _, err := l.Load(t.Context(), other{s}); err == nil ||
		!strings.Contains(err.Error(), "format 2") {
		t.Errorf("a ledger of another format: %v", err)
	}
	if want := []string{"run PRESENT", "begin", "run BUMP SELECT"}; !slices.Equal(d.lines, want) {
		t.Errorf("calls %q, want %q", d.lines, want)
	}
}

// other is a session of a database whose ledger has a later format.
type other struct{ session }

func (o other) Run(ctx context.Context, statements ...*sqlspan.Statement) error {
	err := o.session.Run(ctx, statements...)
	for _, s := range statements {
		if strings.HasPrefix(s.SQL, "SELECT format") {
			*s.Dest[0].(*int64) = sqlspan.Format + 1
		}
	}
	return err
}
