package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

// tableColumns asks for a table's columns.
const tableColumns = `SELECT attname, format_type(atttypid, atttypmod), atthasdef OR attidentity <> '' OR attgenerated <> ''
	FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`

const evictFenced = `SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND (classid::bigint << 32 | objid::bigint) = $1 AND pid <> pg_backend_pid()`

// dialectOf is the SQL of the ledger's tables, which stand in the data's schema;
// docs/formats/sql-tables.md.
func (s *Sink) dialectOf(ledger string) sqlspan.Dialect {
	sum := sha256.Sum256([]byte("penstock ledger " + s.name.Schema + "." + ledger))
	s.fence = int64(binary.BigEndian.Uint64(sum[:]))
	fence := []any{s.fence}
	return sqlspan.Dialect{
		Place:   fmt.Sprintf("table %s", s.name.Beside(sqlspan.MarksTable)),
		Names:   sqlspan.Beside(s.name),
		Arrays:  true,
		Present: sqlspan.Statement{SQL: `SELECT to_regclass($1) IS NOT NULL`, Args: []any{s.name.Beside(sqlspan.RoutesTable).String()}},
		Create: []string{
			`CREATE TABLE IF NOT EXISTS $routes (route text PRIMARY KEY, format integer NOT NULL, epoch bigint NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS $marks (route text, part text, name text NOT NULL, num bigint NOT NULL, key bytea NOT NULL,
				PRIMARY KEY (route, part))`,
			`CREATE TABLE IF NOT EXISTS $spans (route text, part text, from_num bigint, from_key bytea, to_num bigint NOT NULL,
				to_key bytea NOT NULL, PRIMARY KEY (route, part, from_num, from_key))`,
		},
		Alone: []sqlspan.Statement{
			{SQL: `SET LOCAL lock_timeout = '` + fenceWait + `'`}, {SQL: `SELECT pg_advisory_xact_lock($1)`, Args: fence},
		},
		Share: []sqlspan.Statement{{SQL: `SELECT pg_advisory_xact_lock_shared($1)`, Args: fence}},
		Bump:  `INSERT INTO $routes AS r VALUES ($1, $2, 1) ON CONFLICT (route) DO UPDATE SET epoch = r.epoch + 1`,
		SetMark: `INSERT INTO $marks AS m SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bytea[])
			ON CONFLICT (route, part) DO UPDATE SET name = excluded.name, num = excluded.num, key = excluded.key
			WHERE (excluded.num, excluded.key) >= (m.num, m.key)`,
		InsertSpan: `INSERT INTO $spans SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bytea[])
			ON CONFLICT DO NOTHING RETURNING part, from_num, from_key`,
		SpanEnd: `SELECT s.part, s.from_num, s.from_key, s.to_num, s.to_key FROM $spans s JOIN unnest($2::text[], $3::bigint[],
			$4::bytea[]) u (part, num, key) ON s.part = u.part AND s.from_num = u.num AND s.from_key = u.key WHERE s.route = $1`,
		MarkOf: `SELECT part, num, key FROM $marks WHERE route = $1 AND part = ANY ($2::text[])`,
		FoldSpans: `DELETE FROM $spans s USING unnest($2::text[], $3::bigint[], $4::bytea[]) u (part, num, key)
			WHERE s.route = $1 AND s.part = u.part AND (s.to_num, s.to_key) <= (u.num, u.key)`,
		PruneMarks: `DELETE FROM $marks WHERE route = $1 AND part = ANY ($2::text[])`,
		PruneSpans: `DELETE FROM $spans WHERE route = $1 AND part = ANY ($2::text[])`,
	}
}

// fenceWait is for transactions of earlier processes to end, before their connections are ended.
const fenceWait = "2s"

// Load implements stream.TransactionalSink. It waits for a server that is not there yet. The lanes
// connect meanwhile, and know their statements soon after: their first batches would wait 30 ms for
// that.
func (s *Sink) Load(ctx context.Context) ([]stream.Mark, error) {
	begun := false
	marks, err := s.Await(ctx, func(ctx context.Context) ([]stream.Mark, error) {
		marks, err := s.Attempt(ctx, func() {
			if !begun { // behind the ledger's own connection: where there are few, it needs one most
				begun = true
				s.Ahead("postgres", nil) // a process of the server each, which starts meanwhile
			}
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

func network(err error) bool {
	_, is := errors.AsType[net.Error](err)
	return is || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
