package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/flow"
)

// connection is what the sink needs of a driver's connection.
type connection struct {
	conn interface {
		driver.Conn
		driver.ExecerContext
		driver.QueryerContext
	}
}

func (s *Sink) connect(ctx context.Context) (*connection, error) {
	opened, err := s.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := new(connection)
	var ok bool
	if c.conn, ok = opened.(interface {
		driver.Conn
		driver.ExecerContext
		driver.QueryerContext
	}); !ok {
		return nil, errors.Join(errors.New("the MySQL driver lacks ExecContext or QueryContext"), opened.Close())
	}
	// each statement of a transaction sees what was committed before it: a mark that was raised meanwhile
	if _, err := c.exec(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return c, nil
}

func named(args []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

func (c *connection) exec(ctx context.Context, sql string, args ...driver.Value) (affected int64, err error) {
	r, err := c.conn.ExecContext(ctx, sql, named(args))
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query calls row with each row; its values are valid until the next one.
func (c *connection) query(ctx context.Context, row func(v []driver.Value) error, sql string, args ...driver.Value) (err error) {
	rows, err := c.conn.QueryContext(ctx, sql, named(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	v := make([]driver.Value, len(rows.Columns()))
	for {
		err := rows.Next(v)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = row(v)
		}
		if err != nil {
			return err
		}
	}
}

// text is a value as text, however the driver gives it.
func text(v driver.Value) string {
	switch x := v.(type) {
	case []byte:
		return string(x)
	case string:
		return x
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}

// lane is one connection, made when it is needed and anew after each failure.
type lane struct {
	sink  *Sink
	token chan *connection // holds the connection, nil where there is none; who has it may use it

	scratch []byte // of batches without a payload; guarded by the token
	encoder encoder
}

func newLane(s *Sink) *lane {
	l := &lane{sink: s, token: make(chan *connection, 1)}
	l.token <- nil
	return l
}

// undoBound bounds the rollback of a failed transaction.
const undoBound = 2 * time.Second

// do calls f with the connection, within a bound. Where it fails, what it had begun is undone, or the connection closed, which
// undoes it.
func (l *lane) do(ctx context.Context, bound time.Duration, f func(ctx context.Context, c *connection) error) (err error) {
	var c *connection
	select {
	case got, open := <-l.token:
		if !open {
			return errStopped
		}
		c = got
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.token <- c }()
	if bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	if c == nil {
		if c, err = l.sink.connect(ctx); err != nil {
			c = nil
			return err
		}
	}
	if err = f(ctx, c); err == nil {
		return nil
	}
	if said(err) {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		if _, failed := c.exec(undo, "ROLLBACK"); failed == nil {
			return err
		}
	}
	_ = c.conn.Close() // it is given up because it failed
	c = nil
	return err
}

func (l *lane) close() {
	c, open := <-l.token
	if !open {
		return
	}
	close(l.token)
	if c != nil {
		_ = c.conn.Close() // nothing is in it that was not committed
	}
}

// Deliver implements penstock.Worker.
func (l *lane) Deliver(ctx context.Context, a penstock.Attempt) (flow.Report, error) {
	err := l.do(ctx, 0, func(ctx context.Context, c *connection) error { return l.deliver(ctx, c, a.Value) })
	return flow.Report{}, outcome(l.sink.noteEnd(l.sink.vanished(err)))
}

func (l *lane) deliver(ctx context.Context, c *connection, b *penstock.Batch) error {
	s := l.sink
	data := b.Payload
	if len(data) == 0 && b.Kept() > 0 {
		if len(b.Records) == 0 {
			return errors.New("mysql: BUG: a batch was delivered that nobody has split")
		}
		var refusals []sqltable.Refusal
		if l.scratch, refusals = l.encoder.append(l.scratch[:0], s, b); len(refusals) > 0 {
			if err := s.shape.Unfit(refusals[0].Reason); err != nil {
				return &flow.Misconfigured{Err: err}
			}
			return sqltable.Answer(b, refusals)
		}
		data = l.scratch
	}
	if len(data) > 0 {
		if err := s.prepare(ctx, c, b); err != nil {
			return err
		}
	}
	spans := sqlspan.Covering(nil, b.Spans)
	if len(spans) == 0 && len(data) == 0 {
		return nil
	}
	presence, err := s.enter(ctx, c, spans)
	if err != nil {
		return err
	}
	if presence == sqlspan.All {
		_, err := c.exec(ctx, "ROLLBACK")
		return err
	}
	err = statements(data, func(sql string) error {
		_, err := c.exec(ctx, sql)
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.exec(ctx, "COMMIT")
	return err
}
