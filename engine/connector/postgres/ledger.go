package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// statements are the SQL of the ledger, whose tables stand in the data's schema; docs/formats/sql-tables.md.
type statements struct {
	make                                                  string
	routes, insertSpans, spanEnds, epoch, marksOf         string
	bump, marks, spans, setMarks, foldSpans, tableColumns string
	pruneMarks, pruneSpans                                string
}

const (
	shareFence  = `SELECT pg_advisory_xact_lock_shared($1)`
	takeFence   = `SELECT pg_advisory_xact_lock($1)`
	evictFenced = `SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32 | objid::bigint) = $1 AND pid <> pg_backend_pid()`
)

func statementsFor(name sqltable.Name) statements {
	r := sqlspan.Beside(name)
	return statements{
		make: r(`CREATE TABLE IF NOT EXISTS $routes (route text PRIMARY KEY, format integer NOT NULL, epoch bigint NOT NULL);
			CREATE TABLE IF NOT EXISTS $marks (route text, part text, name text NOT NULL, num bigint NOT NULL, key bytea NOT NULL,
				PRIMARY KEY (route, part));
			CREATE TABLE IF NOT EXISTS $spans (route text, part text, from_num bigint, from_key bytea, to_num bigint NOT NULL,
				to_key bytea NOT NULL, PRIMARY KEY (route, part, from_num, from_key))`),
		routes: r(`$routes`),
		insertSpans: r(`INSERT INTO $spans SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bytea[])
			ON CONFLICT DO NOTHING RETURNING part, from_num, from_key`),
		spanEnds: r(`SELECT s.part, s.from_num, s.from_key, s.to_num, s.to_key FROM $spans s JOIN unnest($2::text[], $3::bigint[],
			$4::bytea[]) u (part, num, key) ON s.part = u.part AND s.from_num = u.num AND s.from_key = u.key WHERE s.route = $1`),
		epoch:   r(`SELECT epoch FROM $routes WHERE route = $1`),
		marksOf: r(`SELECT part, num, key FROM $marks WHERE route = $1 AND part = ANY ($2::text[])`),
		bump: r(`INSERT INTO $routes AS r VALUES ($1, $2, 1) ON CONFLICT (route) DO UPDATE SET epoch = r.epoch + 1
			RETURNING format, epoch`),
		marks: r(`SELECT part, name, num, key FROM $marks WHERE route = $1`),
		spans: r(`SELECT part, from_num, from_key, to_num, to_key FROM $spans WHERE route = $1`),
		setMarks: r(`INSERT INTO $marks AS m SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bytea[])
			ON CONFLICT (route, part) DO UPDATE SET name = excluded.name, num = excluded.num, key = excluded.key
			WHERE (excluded.num, excluded.key) >= (m.num, m.key)`),
		foldSpans: r(`DELETE FROM $spans s USING unnest($2::text[], $3::bigint[], $4::bytea[]) u (part, num, key)
			WHERE s.route = $1 AND s.part = u.part AND (s.to_num, s.to_key) <= (u.num, u.key)`),
		pruneMarks: r(`DELETE FROM $marks WHERE route = $1 AND part = ANY ($2::text[])`),
		pruneSpans: r(`DELETE FROM $spans WHERE route = $1 AND part = ANY ($2::text[])`),
		tableColumns: `SELECT attname, format_type(atttypid, atttypmod), atthasdef OR attidentity <> '' OR attgenerated <> ''
			FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`,
	}
}

// fenceWait is for transactions of earlier processes to end, before their connections are ended.
const fenceWait = "2s"

// LedgerName implements stream.LedgerNamer.
func (s *Sink) LedgerName() string {
	return fmt.Sprintf("table %s, route %q", s.name.Beside(sqlspan.MarksTable), s.Books.Ledger)
}

// Load implements stream.Ledgered. It waits for a server that is not there yet. The lanes connect meanwhile, and know their statements
// soon after: their first batches would wait 30 ms for that.
func (s *Sink) Load(ctx context.Context) ([]stream.Mark, error) {
	begun := false
	marks, err := s.Books.Load(ctx, func(ctx context.Context) ([]stream.Mark, error) {
		marks, err := s.Attempt(ctx, func(ctx context.Context, c *conn) ([]stream.Mark, error) {
			if !begun { // behind the ledger's own connection: where there are few, it needs one most
				begun = true
				s.Ahead("postgres", nil) // a process of the server each, which starts meanwhile
			}
			return s.load(ctx, c)
		})
		if waited(err) {
			s.evict(ctx)
		}
		return marks, err
	}, transient)
	if err != nil {
		return nil, err
	}
	s.Ahead("postgres", func(ctx context.Context, c *conn, w sqlspan.Writer[*conn]) error {
		_, err := w.Enter(ctx, c, nil, s.Shape.Known() != nil) // the server plans it, and what it began is undone
		return err
	})
	return marks, nil
}

// evict ends the connections of earlier processes whose transactions do not end by themselves.
func (s *Sink) evict(ctx context.Context) {
	err := s.Change(ctx, func(ctx context.Context, c *conn) error {
		var ended int64
		if err := c.QueryRow(ctx, evictFenced, s.fence).Scan(&ended); err != nil {
			return err
		}
		s.host.Log().Warn("connections of an earlier process of this route were ended", "connections", ended)
		return nil
	})
	if err != nil {
		s.host.Log().Warn("connections of an earlier process of this route hold its ledger and cannot be ended", "error", err)
	}
}

// load is one attempt: it makes the ledger's tables, takes the next epoch, and reads and folds what is there.
func (s *Sink) load(ctx context.Context, c *conn) (marks []stream.Mark, err error) {
	var there bool
	if err := c.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, s.sql.routes).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		if _, err := c.PgConn().Exec(ctx, s.sql.make).ReadAll(); err != nil {
			return nil, fmt.Errorf("making the ledger's tables: %w", err)
		}
	}
	err = pgx.BeginTxFunc(ctx, c.Conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+fenceWait+`'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, takeFence, s.fence); err != nil {
			return fmt.Errorf("waiting for the transactions of earlier processes: %w", err)
		}
		var format, epoch int64
		if err := tx.QueryRow(ctx, s.sql.bump, s.Books.Ledger, sqlspan.Format).Scan(&format, &epoch); err != nil {
			return err
		}
		if err := s.Books.CheckFormat(format); err != nil {
			return err
		}
		if marks, err = s.held(ctx, tx); err != nil {
			return err
		}
		if err := s.foldTo(ctx, tx, marks); err != nil {
			return err
		}
		s.Books.Take(epoch)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return marks, s.find(ctx, c.Conn)
}

func (s *Sink) held(ctx context.Context, tx pgx.Tx) ([]stream.Mark, error) {
	rows, err := tx.Query(ctx, s.sql.marks, s.Books.Ledger)
	if err != nil {
		return nil, err
	}
	marks, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (m stream.Mark, err error) {
		var key []byte
		err = r.Scan(&m.Part.ID, &m.Part.Name, &m.Watermark.Num, &key)
		m.Watermark.Key = string(key)
		return m, err
	})
	if err != nil {
		return nil, err
	}
	if rows, err = tx.Query(ctx, s.sql.spans, s.Books.Ledger); err != nil {
		return nil, err
	}
	spans, err := pgx.CollectRows(rows, scanSpan)
	return sqlspan.Fold(marks, spans), err
}

func scanSpan(r pgx.CollectableRow) (s sqlspan.Row, err error) {
	var from, to []byte
	err = r.Scan(&s.Part, &s.From.Num, &from, &s.To.Num, &to)
	s.From.Key, s.To.Key = string(from), string(to)
	return s, err
}

// foldTo moves the marks up and takes away the rows at or below them. That one transaction does both is what keeps a late
// copy of a batch out: its span row is free again only when the mark is to be seen.
func (s *Sink) foldTo(ctx context.Context, tx pgx.Tx, marks []stream.Mark) error {
	if len(marks) == 0 {
		return nil
	}
	var parts, names []string
	var nums []int64
	var keys [][]byte
	for _, m := range marks {
		parts, names = append(parts, m.Part.ID), append(names, strings.ToValidUTF8(strings.ReplaceAll(m.Part.Name, "\x00", ""), "\uFFFD"))
		nums, keys = append(nums, m.Watermark.Num), append(keys, []byte(m.Watermark.Key))
	}
	if _, err := tx.Exec(ctx, s.sql.setMarks, s.Books.Ledger, parts, names, nums, keys); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.sql.foldSpans, s.Books.Ledger, parts, nums, keys)
	return err
}

// Compact implements stream.Ledgered.
func (s *Sink) Compact(ctx context.Context, marks []stream.Mark) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error { return s.foldTo(ctx, tx, marks) })
}

// Prune implements stream.Pruner.
func (s *Sink) Prune(ctx context.Context, ids []string) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.pruneSpans, s.Books.Ledger, ids); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql.pruneMarks, s.Books.Ledger, ids)
		return err
	})
}

// change calls f in a transaction of the process's own epoch, over the ledger's own connection.
func (s *Sink) change(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return s.Change(ctx, func(ctx context.Context, c *conn) error {
		return pgx.BeginTxFunc(ctx, c.Conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, shareFence, s.fence); err != nil {
				return err
			}
			var epoch int64
			if err := tx.QueryRow(ctx, s.sql.epoch, s.Books.Ledger).Scan(&epoch); err != nil {
				return err
			}
			if err := s.Books.Check(epoch); err != nil {
				return err
			}
			return f(ctx, tx)
		})
	})
}

func network(err error) bool {
	_, is := errors.AsType[net.Error](err)
	return is || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
