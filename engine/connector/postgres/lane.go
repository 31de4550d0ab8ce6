package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/flow"
)

// lane is one connection, made when it is needed and anew after each failure that leaves it in doubt.
type lane struct {
	sink  *Sink
	token chan *pgx.Conn // holds the connection, nil where there is none; who has it may use it
	stage bool           // this connection has its staging table; guarded by the token

	scratch []byte // of batches without a payload; guarded by the token
	encoder encoder
}

func newLane(s *Sink) *lane {
	l := &lane{sink: s, token: make(chan *pgx.Conn, 1)}
	l.token <- nil
	return l
}

// undoBound bounds the rollback of a failed transaction and the farewell to a connection.
const undoBound = 2 * time.Second

// do calls f with the connection, within a bound; where it fails, what it had begun is undone, or the connection closed.
func (l *lane) do(ctx context.Context, bound time.Duration, f func(ctx context.Context, c *pgx.Conn) error) (err error) {
	var c *pgx.Conn
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
	if c == nil || c.IsClosed() {
		if c, err = l.connect(ctx); err != nil {
			c = nil
			return err
		}
	}
	err = f(ctx, c)
	if c.IsClosed() {
		c = nil
	} else if c.PgConn().TxStatus() != 'I' {
		if undone := undo(ctx, c); undone != nil {
			c = nil
		}
	}
	return err
}

// undo ends a transaction that is open. It has to run also when ctx is over.
func undo(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	_, err := c.Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		_ = c.Close(ctx) // it is given up because it failed
	}
	return err
}

// session makes the server end what a vanished client has left behind, so that a fence does not wait for it for ever.
const session = `SET idle_in_transaction_session_timeout = '60s'; SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10;
	SET tcp_keepalives_count = 3; SET client_min_messages = warning; SET datestyle = 'ISO'`

func (l *lane) connect(ctx context.Context) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, l.sink.config)
	if err != nil {
		return nil, err
	}
	l.stage = false
	if _, err := c.PgConn().Exec(ctx, session).ReadAll(); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

func (l *lane) close() {
	c, open := <-l.token
	if !open {
		return
	}
	close(l.token)
	if c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), undoBound)
		defer cancel()
		_ = c.Close(ctx) // nothing is in it that was not committed
	}
}

// Deliver implements penstock.Worker.
func (l *lane) Deliver(ctx context.Context, a penstock.Attempt) (flow.Report, error) {
	err := l.do(ctx, 0, func(ctx context.Context, c *pgx.Conn) error { return l.deliver(ctx, c, a.Value) })
	return flow.Report{}, outcome(l.sink.noteEnd(err))
}

func (l *lane) deliver(ctx context.Context, c *pgx.Conn, b *penstock.Batch) error {
	s := l.sink
	data := b.Payload
	if len(data) == 0 && b.Kept() > 0 {
		if len(b.Records) == 0 {
			return errors.New("postgres: BUG: a batch was delivered that nobody has split")
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
		if err := l.prepare(ctx, c, b); err != nil {
			return err
		}
	}
	spans := sqlspan.Covering(nil, b.Spans)
	if len(spans) == 0 && len(data) == 0 {
		return nil
	}
	presence, err := s.enter(ctx, c, spans, len(data) > 0)
	if err != nil || presence == sqlspan.All {
		return err
	}
	if len(data) > 0 {
		if err := l.write(ctx, c, s.shape.For(b), data); err != nil {
			return err
		}
	}
	return commit(ctx, c)
}

// write copies the rows into the table, in the transaction that is open.
func (l *lane) write(ctx context.Context, c *pgx.Conn, t *sqltable.Table, data []byte) error {
	into := copySQL(l.sink.name.String(), t.Columns, false)
	if l.stage {
		into = copySQL(stageName, t.Columns, true)
	}
	source := &lent{rest: data, err: errEnd}
	_, err := c.PgConn().CopyFrom(ctx, source, into)
	source.takeBack()
	if err != nil || !l.stage {
		return err
	}
	_, err = c.Exec(ctx, mergeSQL(l.sink.name, t.Columns, l.sink.o.Key))
	return err
}

func commit(ctx context.Context, c *pgx.Conn) error {
	tag, err := c.Exec(ctx, "COMMIT", pgx.QueryExecModeSimpleProtocol)
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("the server answered COMMIT by %s", tag)
	}
	return err
}

// enter begins a transaction, stores the rows of spans in it, and says how much of them was there before. With None the
// transaction is open and the data may follow. It is one round trip, in which the table's columns are looked at where data is
// to follow.
func (s *Sink) enter(ctx context.Context, c *pgx.Conn, spans []penstock.Span, data bool) (sqlspan.Presence, error) {
	q := querySpans(spans)
	var epoch int64
	stored := make(map[key]bool, len(spans))
	marks := make(map[string]penstock.Position)
	var batch pgx.Batch
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	batch.Queue(shareFence, s.fence).Exec(func(pgconn.CommandTag) error { return nil })
	batch.Queue(s.sql.epoch, s.ledger).QueryRow(func(r pgx.Row) error { return r.Scan(&epoch) })
	batch.Queue(s.sql.insertSpans, s.ledger, q.parts, q.fromNums, q.fromKeys, q.toNums, q.toKeys).Query(func(rows pgx.Rows) error {
		return each(rows, func() error {
			var k key
			var text []byte
			err := rows.Scan(&k.part, &k.num, &text)
			k.key = string(text)
			stored[k] = true
			return err
		})
	})
	batch.Queue(s.sql.marksOf, s.ledger, q.parts).Query(func(rows pgx.Rows) error {
		return each(rows, func() error {
			var part string
			var at penstock.Position
			var text []byte
			err := rows.Scan(&part, &at.Num, &text)
			at.Key = string(text)
			marks[part] = at
			return err
		})
	})
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
	if err := s.checkEpoch(epoch); err != nil {
		return sqlspan.None, err
	}
	before, err := s.before(ctx, c, q, spans, stored)
	if err != nil {
		return sqlspan.None, err
	}
	presence := sqlspan.Judge(spans, before, marks)
	if presence == sqlspan.Part {
		return presence, &sqlspan.PartError{Ledger: s.ledger, Span: spans[0]}
	}
	if data && presence == sqlspan.None {
		return presence, s.checkColumns(s.shape.Known(), columns)
	}
	return presence, nil
}

// before returns, for each span, where the row ends that was there before; nil: there was none.
func (s *Sink) before(ctx context.Context, c *pgx.Conn, q spanArrays, spans []penstock.Span, inserted map[key]bool) ([]*penstock.Position, error) {
	ends := make([]*penstock.Position, len(spans))
	if len(inserted) == len(spans) {
		return ends, nil
	}
	rows, err := c.Query(ctx, s.sql.spanEnds, s.ledger, q.parts, q.fromNums, q.fromKeys)
	if err != nil {
		return nil, err
	}
	there, err := pgx.CollectRows(rows, scanSpan)
	if err != nil {
		return nil, err
	}
	byKey := make(map[key]penstock.Position, len(there))
	for _, r := range there {
		byKey[key{r.Part, r.From.Num, r.From.Key}] = r.To
	}
	for i, sp := range spans {
		k := key{sp.Part.ID, sp.From.Num, sp.From.Key}
		if end, ok := byKey[k]; ok && !inserted[k] {
			ends[i] = &end
		}
	}
	return ends, nil
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

func querySpans(spans []penstock.Span) (q spanArrays) {
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
