package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// conn is a connection to the server, with the state of its session.
type conn struct {
	*pgx.Conn
	stage bool     // the staging table exists
	heads []byte   // buffer of sendFrames
	parts [][]byte // buffer of sendFrames
}

// server implements sqlspan.Database, the methods by which package sqlspan uses PostgreSQL.
type server struct{ sink *Sink }

// undoBound bounds the rollback of a failed transaction and the close of a connection.
const undoBound = 2 * time.Second

// session is the SQL that sets the parameters of a new session. Its timeouts make the server end
// the transaction of a vanished client. So a new process, which waits for the transactions of
// earlier ones, does not wait indefinitely.
const session = `SET idle_in_transaction_session_timeout = '60s'; SET tcp_keepalives_idle = 30;
	SET tcp_keepalives_interval = 10;
	SET tcp_keepalives_count = 3; SET client_min_messages = warning; SET datestyle = 'ISO'`

// durable makes commits of the session durable. It is not used if the configured URL sets
// synchronous_commit. A role or database may set this parameter to off. The server could then lose
// commits in a crash although it has reported them.
const durable = `; SELECT set_config('synchronous_commit', 'on', false)
	WHERE current_setting('synchronous_commit') = 'off'`

// Connect implements sqlspan.Server. It connects and sets the parameters of the session.
func (s server) Connect(ctx context.Context) (*conn, error) {
	c, err := pgx.ConnectConfig(ctx, s.sink.config)
	if err != nil {
		return nil, err
	}
	settings := session
	chosen := s.sink.config.RuntimeParams
	if chosen["synchronous_commit"] == "" &&
		!strings.Contains(chosen["options"], "synchronous_commit") {
		settings += durable
	}
	if _, err := c.PgConn().Exec(ctx, settings).ReadAll(); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	encoding := c.PgConn().ParameterStatus("server_encoding")
	s.sink.ASCII.Store(encoding != "UTF8" && encoding != "SQL_ASCII")
	return &conn{Conn: c}, nil
}

// Alive implements sqlspan.Server.
func (s server) Alive(_ context.Context, c *conn) bool { return !c.IsClosed() }

// Restore implements sqlspan.Server. It rolls back an open transaction. If err is specific to the
// session (see ofSession), as after a failover, Restore closes the session instead.
func (s server) Restore(ctx context.Context, c *conn, err error) bool {
	switch {
	case c.IsClosed():
		return false
	case ofSession(err):
		s.Close(c)
		return false
	case c.PgConn().TxStatus() == 'I':
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	_, err = c.Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		_ = c.Conn.Close(ctx) // the connection has failed already
	}
	return err == nil
}

// Close implements sqlspan.Server. The server rolls back an open transaction.
func (s server) Close(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), undoBound)
	defer cancel()
	_ = c.Conn.Close(ctx)
}

// Writer implements sqlspan.Database.
func (s server) Writer() sqlspan.Writer[*conn] { return &writer{sink: s.sink} }

// Transient implements sqlspan.Database. It reports whether Load should retry after err.
func (s server) Transient(err error) bool { return transient(err) }

// Outcome implements sqlspan.Database. It maps an error to the outcome that Deliver returns.
func (s server) Outcome(err error) error { return outcome(err) }

// writer writes the rows of batches. It implements sqlspan.Writer.
type writer struct {
	sink *Sink
	rows sqltable.Rows
}

// Write implements sqlspan.Writer. It copies the rows into the table; in mode upsert, it copies
// them into the staging table and merges them from there.
func (w *writer) Write(ctx context.Context, c *conn, b *stream.Batch, data []byte) error {
	columns := w.sink.Shape.For(b).Columns
	into := copySQL(w.sink.name.String(), columns, false)
	if c.stage {
		into = copySQL(stageName, columns, true)
	}
	if err := c.copyIn(ctx, into, data); err != nil || !c.stage {
		return err
	}
	_, err := c.Exec(ctx, mergeSQL(w.sink.name, columns, w.sink.o.Key))
	return err
}

// Begin implements sqlspan.Session. It begins a transaction and runs the statements in it.
func (c *conn) Begin(ctx context.Context, statements ...*sqlspan.Statement) error {
	begin := &sqlspan.Statement{SQL: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"}
	return c.Run(ctx, append([]*sqlspan.Statement{begin}, statements...)...)
}

// Run implements sqlspan.Session. It needs one round trip, and another one to prepare statements
// that are new to the session, but none without statements.
func (c *conn) Run(ctx context.Context, statements ...*sqlspan.Statement) error {
	if len(statements) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, s := range statements {
		q := batch.Queue(s.SQL, s.Args...)
		if s.Dest == nil {
			q.Exec(func(tag pgconn.CommandTag) error { s.Affected = tag.RowsAffected(); return nil })
			continue
		}
		q.Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, s.Dest, func() error {
				if s.Row != nil {
					s.Row()
				}
				return nil
			})
			return err
		})
	}
	return c.SendBatch(ctx, &batch).Close()
}

// Commit implements sqlspan.Session. It commits the current transaction.
func (c *conn) Commit(ctx context.Context) error {
	tag, err := c.Exec(ctx, "COMMIT", pgx.QueryExecModeSimpleProtocol)
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("the server responded to COMMIT with %s", tag)
	}
	return err
}

// Enter implements sqlspan.Writer. It begins the transaction of a batch in one round trip. If the
// batch has rows to write, Enter also locks the table against changes and reads its columns, in the
// same round trip.
func (w *writer) Enter(ctx context.Context, c *conn, b *stream.Batch,
	data bool) (sqlspan.Presence, error) {
	s := w.sink
	var there []sqltable.Column
	var more []*sqlspan.Statement
	if data {
		more = append(more, s.lockTable(), s.readColumns(&there))
	}
	presence, err := s.Enter(ctx, c, b, more...)
	if data && err == nil && presence == sqlspan.None {
		err = s.checkColumns(s.Shape.Known(), there)
	}
	if waited(err) {
		err = s.evictSuspended(ctx, c, err)
	}
	return presence, err
}
