package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// conn is a connection with what it has.
type conn struct {
	*pgx.Conn
	stage bool     // its staging table
	heads []byte   // memory of sendFrames
	parts [][]byte // the same
}

// server implements sqlspan.Database.
type server struct{ sink *Sink }

// undoBound bounds the rollback of a failed transaction and the farewell to a connection.
const undoBound = 2 * time.Second

// session makes the server end what a vanished client has left behind, so that a fence does not wait for it for ever.
const session = `SET idle_in_transaction_session_timeout = '60s'; SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10;
	SET tcp_keepalives_count = 3; SET client_min_messages = warning; SET datestyle = 'ISO'`

// Connect implements sqlspan.Server.
func (s server) Connect(ctx context.Context) (*conn, error) {
	c, err := pgx.ConnectConfig(ctx, s.sink.config)
	if err != nil {
		return nil, err
	}
	if _, err := c.PgConn().Exec(ctx, session).ReadAll(); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return &conn{Conn: c}, nil
}

// Restore implements sqlspan.Server. A session that a failover has left on the wrong server, or that the server ends, is closed.
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
		_ = c.Conn.Close(ctx) // it is given up because it failed
	}
	return err == nil
}

// Close implements sqlspan.Server: nothing is in it that was not committed.
func (s server) Close(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), undoBound)
	defer cancel()
	_ = c.Conn.Close(ctx)
}

// Writer implements sqlspan.Database.
func (s server) Writer() sqlspan.Writer[*conn] { return &writer{sink: s.sink} }

// Outcome implements sqlspan.Database.
func (s server) Outcome(err error) error { return outcome(err) }

// writer implements sqlspan.Writer.
type writer struct {
	sink    *Sink
	encoder encoder
}

// Encode implements sqlspan.Writer.
func (w *writer) Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal) {
	return w.encoder.append(dst, w.sink, b)
}

// Write implements sqlspan.Writer: it copies the rows into the table.
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

// Commit implements sqlspan.Writer.
func (w *writer) Commit(ctx context.Context, c *conn) error {
	tag, err := c.Exec(ctx, "COMMIT", pgx.QueryExecModeSimpleProtocol)
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("the server answered COMMIT by %s", tag)
	}
	return err
}

// Enter implements sqlspan.Writer. It is one round trip, in which the table's columns are looked at where data is to follow.
func (w *writer) Enter(ctx context.Context, c *conn, spans []stream.Span, data bool) (sqlspan.Presence, error) {
	s, q := w.sink, querySpans(spans)
	var epoch int64
	stored := make(map[key]bool, len(spans))
	marks := make(map[string]stream.Position)
	var batch pgx.Batch
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	batch.Queue(shareFence, s.fence).Exec(func(pgconn.CommandTag) error { return nil })
	batch.Queue(s.sql.epoch, s.Books.Ledger).QueryRow(func(r pgx.Row) error { return r.Scan(&epoch) })
	batch.Queue(s.sql.insertSpans, s.Books.Ledger, q.parts, q.fromNums, q.fromKeys, q.toNums, q.toKeys).Query(func(rows pgx.Rows) error {
		return each(rows, func() error {
			var k key
			var text []byte
			err := rows.Scan(&k.part, &k.num, &text)
			k.key = string(text)
			stored[k] = true
			return err
		})
	})
	batch.Queue(s.sql.marksOf, s.Books.Ledger, q.parts).Query(func(rows pgx.Rows) error { return scanMarks(rows, marks) })
	var columns []sqltable.Column
	if data {
		batch.Queue(s.sql.tableColumns, s.name.String()).Query(func(rows pgx.Rows) (err error) {
			columns, err = pgx.CollectRows(rows, scanColumn)
			return err
		})
	}
	if err := c.SendBatch(ctx, &batch).Close(); err != nil {
		return sqlspan.None, err
	}
	if err := s.Books.Check(epoch); err != nil {
		return sqlspan.None, err
	}
	before, folded, err := s.before(ctx, c, q, spans, stored)
	if err == nil && folded {
		var rows pgx.Rows
		if rows, err = c.Query(ctx, s.sql.marksOf, s.Books.Ledger, q.parts); err == nil {
			err = scanMarks(rows, marks)
		}
	}
	if err != nil {
		return sqlspan.None, err
	}
	presence := sqlspan.Judge(spans, before, marks)
	if presence == sqlspan.Part {
		return presence, &sqlspan.PartError{Ledger: s.Books.Ledger, Span: spans[0]}
	}
	if data && presence == sqlspan.None {
		return presence, s.checkColumns(s.Shape.Known(), columns)
	}
	return presence, nil
}

// scanMarks puts the marks that rows hold into marks, by partition.
func scanMarks(rows pgx.Rows, marks map[string]stream.Position) error {
	return each(rows, func() error {
		var part string
		var at stream.Position
		var text []byte
		err := rows.Scan(&part, &at.Num, &text)
		at.Key = string(text)
		marks[part] = at
		return err
	})
}

// before returns, for each span, where the row ends that was there before; nil: there was none. folded says that one which was there
// when it was to be stored is gone now: another attempt, whose answer came late, has settled the batch, and the row went into a mark that
// is younger than those that were read.
func (s *Sink) before(
	ctx context.Context, c *conn, q spanArrays, spans []stream.Span, inserted map[key]bool,
) (ends []*stream.Position, folded bool, err error) {
	ends = make([]*stream.Position, len(spans))
	if len(inserted) == len(spans) {
		return ends, false, nil
	}
	rows, err := c.Query(ctx, s.sql.spanEnds, s.Books.Ledger, q.parts, q.fromNums, q.fromKeys)
	if err != nil {
		return nil, false, err
	}
	there, err := pgx.CollectRows(rows, scanSpan)
	if err != nil {
		return nil, false, err
	}
	byKey := make(map[key]stream.Position, len(there))
	for _, r := range there {
		byKey[key{r.Part, r.From.Num, r.From.Key}] = r.To
	}
	for i, sp := range spans {
		k := key{sp.Part.ID, sp.From.Num, sp.From.Key}
		if inserted[k] {
			continue
		}
		if end, there := byKey[k]; there {
			ends[i] = &end
		} else {
			folded = true
		}
	}
	return ends, folded, nil
}

// key is a span row's, within a route.
type key struct {
	part string
	num  int64
	key  string
}

// spanArrays are spans as the arguments of unnest.
type spanArrays struct {
	parts            []string
	fromNums, toNums []int64
	fromKeys, toKeys [][]byte
}

func querySpans(spans []stream.Span) (q spanArrays) {
	for _, s := range spans {
		q.parts = append(q.parts, s.Part.ID)
		q.fromNums, q.fromKeys = append(q.fromNums, s.From.Num), append(q.fromKeys, []byte(s.From.Key))
		q.toNums, q.toKeys = append(q.toNums, s.To.Num), append(q.toKeys, []byte(s.To.Key))
	}
	return q
}

func each(rows pgx.Rows, row func() error) error {
	defer rows.Close()
	for rows.Next() {
		if err := row(); err != nil {
			return err
		}
	}
	return rows.Err()
}
