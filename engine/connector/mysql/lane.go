package mysql

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// connection is a driver connection with the session state of sqlspan.Direct.
type connection = sqlspan.Direct

// server implements sqlspan.Database, the methods by which package sqlspan uses MySQL.
type server struct{ sink *Sink }

// Connect implements sqlspan.Server. It connects and sets the isolation level.
func (s server) Connect(ctx context.Context) (*connection, error) {
	opened, err := s.sink.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{BeginText: "START TRANSACTION"}
	if c.Conn, err = sqldriver.Direct(opened); err != nil {
		return nil, err
	}
	// With READ COMMITTED, each statement sees all marks (stored watermarks) that were committed
	// before the statement. This includes marks that other transactions have raised since the start
	// of this transaction.
	if _, err := c.Exec(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return c, nil
}

// undoBound bounds the rollback of a failed transaction.
const undoBound = 2 * time.Second

// Alive implements sqlspan.Server. It returns false for a connection that the server has closed,
// for example because it was idle for the wait_timeout of the session.
func (s server) Alive(ctx context.Context, c *connection) bool {
	r, ok := c.Conn.(driver.SessionResetter)
	return !ok || r.ResetSession(ctx) == nil
}

// Restore implements sqlspan.Server. It rolls back an open transaction. If the connection is not
// usable, it closes the connection, and the server rolls back.
func (s server) Restore(ctx context.Context, c *connection, err error) bool {
	if err == nil && !c.Open() {
		return true
	}
	if err == nil || isUsableAfter(err) {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		if c.Rollback(undo) == nil {
			return true
		}
	}
	s.Close(c)
	return false
}

// Close implements sqlspan.Server. If a transaction is open on c, the server rolls it back.
func (s server) Close(c *connection) { _ = c.Conn.Close() }

// Writer implements sqlspan.Database.
func (s server) Writer() sqlspan.Writer[*connection] { return &writer{sink: s.sink} }

// Transient implements sqlspan.Database. It reports whether Load should retry after err.
func (s server) Transient(err error) bool { return transient(err) }

// Outcome implements sqlspan.Database. It maps an error to the outcome that Deliver returns.
func (s server) Outcome(err error) error { return outcome(s.sink.vanished(err)) }

// writer writes the rows of batches. It implements sqlspan.Writer.
type writer struct {
	sink *Sink
	rows sqltable.Rows
}

// Write implements sqlspan.Writer. It runs the INSERT statements in data.
func (w *writer) Write(ctx context.Context, c *connection, _ *stream.Batch, data []byte) error {
	for len(data) > 4 {
		n := binary.LittleEndian.Uint32(data)
		if _, err := c.Exec(ctx, string(data[4:4+n])); err != nil {
			return err
		}
		data = data[4+n:]
	}
	return nil
}

// Enter implements sqlspan.Writer. It begins the transaction of a batch.
func (w *writer) Enter(ctx context.Context, c *connection, b *stream.Batch,
	_ bool) (sqlspan.Presence, error) {
	return w.sink.Enter(ctx, c, b)
}
