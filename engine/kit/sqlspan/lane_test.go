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

// diary is a database that notes what is asked of it, and fails where it is told to.
type diary struct {
	lines    []string
	presence sqlspan.Presence
	fail     string // the call that fails
	made     int
}

var errBroken = errors.New("broken")

func (d *diary) note(what string) error {
	d.lines = append(d.lines, what)
	if what == d.fail {
		return errBroken
	}
	return nil
}

func (d *diary) Connect(context.Context) (int, error) {
	d.made++
	return d.made, d.note("connect")
}

func (d *diary) Restore(ctx context.Context, c int, err error) bool {
	_ = d.note("restore")
	return !errors.Is(err, errBroken)
}

func (d *diary) Close(c int) { _ = d.note(fmt.Sprintf("close %d", c)) }

func (d *diary) Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal) {
	return append(dst, "rows"...), nil
}

func (d *diary) Prepare(context.Context, int, *stream.Batch) error { return d.note("prepare") }

func (d *diary) Enter(_ context.Context, _ int, spans []stream.Span, data bool) (sqlspan.Presence, error) {
	return d.presence, d.note(fmt.Sprintf("enter %d %v", len(spans), data))
}

func (d *diary) Write(_ context.Context, _ int, _ *stream.Batch, data []byte) error {
	return d.note("write " + string(data))
}

func (d *diary) Commit(context.Context, int) error { return d.note("commit") }

// batchOf has so many records, in one span; and one that covers nothing.
func batchOf(records int) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	part := &stream.Partition{ID: "p"}
	b.Data = []byte(strings.Repeat("a\n", records))
	b.Origins = records
	to := stream.Position{Num: int64(len(b.Data))}
	b.Spans = []stream.Span{
		{Part: part, Bytes: len(b.Data), Range: stream.Range{To: to}}, {Part: part, Range: stream.Range{From: to, To: to}},
	}
	if records == 0 {
		b.Spans[0].To.Num = 5 // its records were dropped
	}
	b.Split()
	return b
}

// TestDeliver: what happens in which order, and that nothing is written of what the ledger has.
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
		d := &diary{presence: c.presence, fail: c.fail}
		lane := sqlspan.NewLane(sqlspan.Server[int](d))
		var scratch []byte
		err := lane.Do(t.Context(), 0, func(ctx context.Context, conn int) error {
			return sqlspan.Deliver(ctx, conn, sqlspan.Writer[int](d), nil, batchOf(c.records), &scratch)
		})
		if got := strings.Join(d.lines, ", "); got != c.want || (err != nil) != (c.fail != "") {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

// TestLane: a connection is used again until it is in doubt, one at a time, and not after Close.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		lane := sqlspan.NewLane(sqlspan.Server[int](d))
		var used []int
		use := func(err error) error {
			return lane.Do(t.Context(), 0, func(_ context.Context, c int) error {
				used = append(used, c)
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
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := time.Now()
		err := lane.Do(ctx, time.Second, func(inner context.Context, _ int) error {
			cancel(enough)
			if err := lane.Do(ctx, 0, nil); err != enough {
				t.Errorf("Do while another has the connection: %v, want the cause", err)
			}
			<-inner.Done()
			return inner.Err()
		})
		if !errors.Is(err, context.Canceled) || time.Since(begun) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		lane.Close()
		lane.Close()
		if err := use(nil); err != sqlspan.ErrStopped || d.lines[len(d.lines)-1] != "close 2" {
			t.Errorf("after Close: %v, %v", err, d.lines)
		}
	})
}

// host has nothing but a log.
type host struct{}

func (host) Log() *slog.Logger                                   { return slog.New(slog.DiscardHandler) }
func (host) FS() vfs.FS                                          { return nil }
func (host) Go(name string, run func(ctx context.Context) error) {}
func (host) Fault(error)                                         {}
func (host) Count(name string, n int64)                          {}

// TestLoad: a server that is not there is waited for, in a finite run for a minute.
func TestLoad(t *testing.T) {
	transient := func(err error) bool { return errors.Is(err, errBroken) }
	for _, c := range []struct {
		once   bool
		fails  int
		fatal  bool
		ok     bool
		within time.Duration
	}{
		{false, 0, false, true, 0}, {false, 40, false, true, time.Hour}, {true, 3, false, true, 10 * time.Second},
		{true, 1 << 30, false, false, time.Minute}, {false, 2, true, false, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := sqlspan.NewBooks(host{})
			b.Open(stream.SinkOptions{Pipeline: "p", Route: "r", Once: c.once}, "")
			calls, begun := 0, time.Now()
			marks, err := b.Load(t.Context(), func(context.Context) ([]stream.Mark, error) {
				if calls++; calls <= c.fails {
					return nil, errBroken
				}
				if c.fatal {
					return nil, errors.New("no such database")
				}
				return []stream.Mark{{}}, nil
			}, transient)
			if (err == nil) != c.ok || len(marks) > 0 != c.ok || time.Since(begun) > c.within {
				t.Errorf("%+v: %v, %v after %v and %d calls", c, marks, err, time.Since(begun), calls)
			}
		})
	}
}

// TestBooks: another epoch is told of, and ends the route once.
func TestBooks(t *testing.T) {
	b := sqlspan.NewBooks(host{})
	b.Open(stream.SinkOptions{Pipeline: "p", Route: "r"}, "")
	if b.Ledger != "p/r" {
		t.Errorf("the ledger is %q", b.Ledger)
	}
	if b.Open(stream.SinkOptions{Pipeline: "p", Route: "r"}, "own"); b.Ledger != "own" {
		t.Errorf("the ledger is %q", b.Ledger)
	}
	b.Take(4)
	if err := b.Check(4); err != nil {
		t.Error(err)
	}
	if b.Note(errBroken) != errBroken || b.Note(nil) != nil {
		t.Error("Note changed an error")
	}
	for range 3 {
		if err := b.Note(fmt.Errorf("delivering: %w", b.Check(5))); err == nil {
			t.Error("epoch 5 is taken for 4")
		}
	}
	if _, ok := errors.AsType[*sqlspan.FencedError](b.Watch(t.Context())); !ok {
		t.Error("nothing ends the route")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Watch(ctx); err != nil {
		t.Error(err)
	}
	if b.CheckFormat(sqlspan.Format) != nil || b.CheckFormat(sqlspan.Format+1) == nil {
		t.Error("CheckFormat does not know its own format")
	}
}
