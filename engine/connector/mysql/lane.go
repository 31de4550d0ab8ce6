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
	open bool // a transaction is
}

// server makes connections.
type server struct{ sink *Sink }

// Connect implements sqlspan.Server.
func (s server) Connect(ctx context.Context) (*connection, error) {
	opened, err := s.sink.connector.Connect(ctx)
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

// undoBound bounds the rollback of a failed transaction.
const undoBound = 2 * time.Second

// Restore implements sqlspan.Server. A connection that is closed undoes what was open.
func (s server) Restore(ctx context.Context, c *connection, err error) bool {
	if err == nil && !c.open {
		return true
	}
	if err == nil || said(err) {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		if _, failed := c.exec(undo, "ROLLBACK"); failed == nil {
			c.open = false
			return true
		}
	}
	s.Close(c)
	return false
}

// Close implements sqlspan.Server: nothing is in it that was not committed, or it is given up.
func (s server) Close(c *connection) { _ = c.conn.Close() }

func (c *connection) begin(ctx context.Context) error {
	_, err := c.exec(ctx, "START TRANSACTION")
	c.open = true
	return err
}

func (c *connection) commit(ctx context.Context) error {
	_, err := c.exec(ctx, "COMMIT")
	c.open = err != nil
	return err
}

// lane is a worker: one connection.
type lane struct {
	*sqlspan.Lane[*connection]
	sink    *Sink
	scratch []byte // of batches without a payload; who has the connection may use it, and the encoder
	encoder encoder
}

func newLane(s *Sink) *lane {
	return &lane{Lane: sqlspan.NewLane(sqlspan.Server[*connection](server{s})), sink: s}
}

// Deliver implements penstock.Worker.
func (l *lane) Deliver(ctx context.Context, a penstock.Attempt) (flow.Report, error) {
	err := l.Do(ctx, 0, func(ctx context.Context, c *connection) error {
		return sqlspan.Deliver(ctx, c, sqlspan.Writer[*connection](l), l.sink.shape, a.Value, &l.scratch)
	})
	return flow.Report{}, outcome(l.sink.books.Note(l.sink.vanished(err)))
}

// Encode implements sqlspan.Writer.
func (l *lane) Encode(dst []byte, b *penstock.Batch) ([]byte, []sqltable.Refusal) {
	return l.encoder.append(dst, l.sink, b)
}

// Write implements sqlspan.Writer.
func (l *lane) Write(ctx context.Context, c *connection, _ *penstock.Batch, data []byte) error {
	return statements(data, func(sql string) error {
		_, err := c.exec(ctx, sql)
		return err
	})
}

// Commit implements sqlspan.Writer.
func (l *lane) Commit(ctx context.Context, c *connection) error { return c.commit(ctx) }
