package sqlspan_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Writer and Outcome make callLog a sqlspan.Database.
func (d *callLog) Writer() sqlspan.Writer[session] { return d }

func (d *callLog) Outcome(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(errors.New("outcome"), err)
}

// TestConnections follows a sink from Open to Close, with a lane for each worker and a connection
// for the ledger.
func TestConnections(t *testing.T) {
	d := &callLog{}
	s := sqlspan.NewConnections[session](host{}, d, nil)
	o := stream.SinkOptions{Pipeline: "p", Route: "r"}
	var lanes []stream.Lane
	o.Lanes = func(l []stream.Lane) { lanes = l }
	s.Ledger.Open(o, "", "data", dialect)
	s.Open(o, "diary", "there", 2)
	if len(lanes) != 2 || lanes[1].Name != "there #2" || lanes[0].Limits.Ordered {
		t.Fatalf("lanes %+v", lanes)
	}
	batch := batchOf(2)
	payload, err := s.Encode(nil, batch)
	if string(payload) != "rows" || err != nil {
		t.Errorf("Encode: %q, %v", payload, err)
	}
	if _, err := lanes[0].Worker.Deliver(t.Context(), stream.Attempt{Value: batch}); err != nil {
		t.Error(err)
	}
	if err := s.Store(t.Context(), batch.Spans); err != nil {
		t.Error(err)
	}
	if err := s.Store(t.Context(), batch.Spans[1:]); err != nil { // an empty span
		t.Error(err)
	}
	d.fail = "write rows"
	if _, err := lanes[0].Worker.Deliver(t.Context(), stream.Attempt{Value: batch}); !errors.Is(err,
		errBroken) ||
		!strings.HasPrefix(err.Error(), "outcome") {
		t.Errorf("a failed Deliver: %v", err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := lanes[1].Worker.Deliver(t.Context(), stream.Attempt{Value: batch}); !errors.Is(err,
		sqlspan.ErrStopped) {
		t.Errorf("Deliver after Close: %v", err)
	}
	want := []string{
		"connect", "prepare", "enter 1 true", "write rows", "commit", "restore",
		"connect", "begin SELECT ADD SELECT", "commit", "restore",
		"prepare", "enter 1 true", "write rows", "restore", "close 2",
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("calls %q,\nwant  %q", d.lines, want)
	}
	if err := sqlspan.NewConnections[session](host{}, d, nil).Close(); err != nil {
		t.Errorf("Close before Open: %v", err)
	}
}

// running is a host whose Go returns after the goroutine has ended.
type running struct{ host }

func (running) Go(name string, run func(ctx context.Context) error) {
	if strings.Contains(name, "ahead") {
		_ = run(context.Background())
	}
}

// TestAhead checks that each lane is connected once even if the setup fails, and that its first
// batch uses this connection.
func TestAhead(t *testing.T) {
	d := &callLog{}
	s := sqlspan.NewConnections[session](running{}, d, nil)
	var lanes []stream.Lane
	s.Open(stream.SinkOptions{Lanes: func(l []stream.Lane) { lanes = l }}, "diary", "there", 2)
	s.Ahead("diary", nil)
	d.fail = "enter 0 true"
	s.Ahead("diary", func(ctx context.Context, c session, w sqlspan.Writer[session]) error {
		_, err := w.Enter(ctx, c, &stream.Batch{}, c.number == 2)
		return err
	})
	d.fail = ""
	for _, l := range lanes {
		if _, err := l.Worker.Deliver(t.Context(), stream.Attempt{Value: batchOf(0)}); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"connect", "restore", "connect", "restore", "enter 0 false", "restore", "enter 0 true",
		"restore",
		"enter 1 false", "commit", "restore", "connect", "enter 1 false", "commit", "restore",
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("calls %q,\nwant  %q", d.lines, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestMaking checks that only one goroutine at a time creates a table, and that a table is created
// once. After a failure, or after the table was dropped, it is created again. Waiting callers can
// be canceled.
func TestMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sqlspan.NewConnections[session](host{}, &callLog{}, nil).Table
		made := 0
		for i, fail := range []error{errBroken, nil, nil} {
			err := m.Once(t.Context(), func() error {
				made++
				return fail
			})
			if err != fail || made != min(i+1, 2) {
				t.Errorf("call %d: %v, made %d times", i, err, made)
			}
		}
		m.Found(false)
		ctx, cancel := context.WithCancelCause(t.Context())
		err := m.Once(t.Context(), func() error {
			cancel(errBroken)
			return m.Once(ctx, nil) // another caller, which finds the token taken
		})
		if err != errBroken {
			t.Errorf("a waiter that gave up: %v, want the cause", err)
		}
		m.Found(true)
		if err := m.Once(t.Context(), nil); err != nil {
			t.Errorf("a table that is there: %v", err)
		}
	})
}

func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		n    int
		mode string
		want int // 0 means refused
	}{{0, sqltable.Append, 4}, {0, sqltable.Upsert, 1}, {3, sqltable.Upsert, 3},
		{100, sqltable.Append, 100}, {101, "", 0}, {-1, "", 0}} {
		n, err := sqlspan.Workers(c.n, c.mode)
		if wrong, ok := errors.AsType[*stream.OptionError](err); ok != (c.want == 0) ||
			ok && wrong.Key != "workers" {
			t.Errorf("Workers(%d, %q): %v", c.n, c.mode, err)
		}
		if err == nil && n != c.want {
			t.Errorf("Workers(%d, %q) = %d, want %d", c.n, c.mode, n, c.want)
		}
	}
}

func TestBeside(t *testing.T) {
	got := sqlspan.Beside(sqltable.Name{Schema: "s",
		Table: "t"})("SELECT * FROM $routes, $marks, $spans")
	if want := `SELECT * FROM "s"."penstock_routes", "s"."penstock_marks", ` +
		`"s"."penstock_spans"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
