package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

// tableColumns selects the columns of a table.
const tableColumns = `SELECT attname, format_type(atttypid, atttypmod), atthasdef OR attidentity <> '' OR attgenerated <> ''
	FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`

const evictFenced = `SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND (classid::bigint << 32 | objid::bigint) = ANY ($1::bigint[]) AND pid <> pg_backend_pid()`

// claimWait bounds the wait for a transaction of another process that stores the same request.
const claimWait = "5s"

// Statements for requests of clients, such as HTTP requests with an Idempotency-Key. Each request
// is a partition of its own. Several Penstock processes can receive the same request.
const (
	claimRequests = `INSERT INTO $marks AS m
		SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bytea[])
		ON CONFLICT (route, part) DO UPDATE SET num = m.num WHERE false RETURNING part`
	// rows are locked in the order of claims
	pruneRequests = `DELETE FROM $marks m USING (SELECT o.part FROM $marks o
			JOIN unnest($2::text[], $3::text[], $4::text[]) u (part, pattern, bound) USING (part)
			WHERE o.route = $1 AND (o.name LIKE u.pattern OR o.name COLLATE "C" < u.bound)
			ORDER BY o.part COLLATE "C" FOR UPDATE OF o) d
		WHERE m.route = $1 AND m.part = d.part`
)

// dialectOf returns the SQL of the ledger's tables, and sets s.fence and s.partFence. The tables
// are in the schema of the sink's table; see docs/formats/sql-tables.md.
func (s *Sink) dialectOf(ledger string) sqlspan.Dialect {
	s.fence = lockKey("penstock ledger " + s.name.Schema + "." + ledger)
	s.partFence = func(id string) int64 {
		return lockKey("penstock ledger " + s.name.Schema + "." + ledger + "\x00" + id)
	}
	fence := []any{s.fence}
	return sqlspan.Dialect{
		Place:  fmt.Sprintf("table %s", s.name.Beside(sqlspan.MarksTable)),
		Names:  sqlspan.Beside(s.name),
		Arrays: true,
		Present: sqlspan.Statement{SQL: `SELECT to_regclass($1) IS NOT NULL`,
			Args: []any{s.name.Beside(sqlspan.RoutesTable).String()}},
		// one statement creates all tables, so that Present never finds only some of them
		Create: []string{`DO $create$ BEGIN
			CREATE TABLE IF NOT EXISTS $routes (route text PRIMARY KEY,
				format integer NOT NULL, epoch bigint NOT NULL);
			CREATE TABLE IF NOT EXISTS $marks (route text, part text, name text NOT NULL, num bigint NOT NULL, key bytea NOT NULL,
				PRIMARY KEY (route, part));
			CREATE TABLE IF NOT EXISTS $spans (route text, part text, from_num bigint, from_key bytea, to_num bigint NOT NULL,
				to_key bytea NOT NULL, PRIMARY KEY (route, part, from_num, from_key));
			END $create$`},
		Alone: []sqlspan.Statement{
			{SQL: `SET LOCAL lock_timeout = '` + fenceWait + `'`},
			{SQL: `SELECT pg_advisory_xact_lock($1)`, Args: fence},
		},
		Share: []sqlspan.Statement{{SQL: `SELECT pg_advisory_xact_lock_shared($1)`, Args: fence}},
		Bump: `INSERT INTO $routes AS r VALUES ($1, $2, 1) ON CONFLICT (route) DO UPDATE SET ` +
			`epoch = r.epoch + 1`,
		SetMark: `INSERT INTO $marks AS m SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bytea[])
			ON CONFLICT (route, part) DO UPDATE SET name = excluded.name, num = excluded.num, key = excluded.key
			WHERE (excluded.num, excluded.key) >= (m.num, m.key) AND excluded IS DISTINCT FROM m`,
		Claim: claimRequests, PruneRequests: pruneRequests,
		SkipLocked:  ` FOR UPDATE SKIP LOCKED`,
		BeforeClaim: []sqlspan.Statement{{SQL: `SET LOCAL lock_timeout = '` + claimWait + `'`}},
		AfterClaim:  []sqlspan.Statement{{SQL: `SET LOCAL lock_timeout = DEFAULT`}},
		InsertSpan: `INSERT INTO $spans SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bytea[])
			ON CONFLICT DO NOTHING RETURNING part, from_num, from_key`,
		SpanEnd: `SELECT s.part, s.from_num, s.from_key, s.to_num, s.to_key FROM $spans s JOIN unnest($2::text[], $3::bigint[],
			$4::bytea[]) u (part, num, key) ON s.part = u.part AND s.from_num = u.num AND s.from_key = u.key WHERE s.route = $1`,
		FoldSpans: `DELETE FROM $spans s USING unnest($2::text[], $3::bigint[], $4::bytea[]) u (part, num, key)
			WHERE s.route = $1 AND s.part = u.part AND (s.to_num, s.to_key) <= (u.num, u.key)`,
		PresentEpochs: sqlspan.Statement{SQL: `SELECT to_regclass($1) IS NOT NULL`,
			Args: []any{s.name.Beside(sqlspan.EpochsTable).String()}},
		CreateEpochs: `CREATE TABLE IF NOT EXISTS $epochs (route text, part text,
			epoch bigint NOT NULL, PRIMARY KEY (route, part))`,
		TakeParts: func(ids []string) []*sqlspan.Statement {
			return []*sqlspan.Statement{
				{SQL: `SET LOCAL lock_timeout = '` + fenceWait + `'`},
				{SQL: `SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) k`,
					Args: []any{s.partFences(ids)}},
			}
		},
		ShareParts: func(ids []string) []*sqlspan.Statement {
			return []*sqlspan.Statement{{
				SQL:  `SELECT pg_advisory_xact_lock_shared(k) FROM unnest($1::bigint[]) k`,
				Args: []any{s.partFences(ids)},
			}}
		},
		RaiseEpoch: `INSERT INTO $epochs AS e SELECT $1, part, 1 FROM unnest($2::text[]) u (part)
			ON CONFLICT (route, part) DO UPDATE SET epoch = e.epoch + 1`,
	}
}

// lockKey returns the key of the advisory lock for a name. If two names happen to have the same
// key, transactions that lock them wait for each other needlessly.
func lockKey(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// partFences returns the keys of the advisory locks of the partitions with the given ids. They are
// sorted, so that transactions that lock several of them cannot deadlock.
func (s *Sink) partFences(ids []string) []int64 {
	keys := make([]int64, len(ids))
	for i, id := range ids {
		keys[i] = s.partFence(id)
	}
	slices.Sort(keys)
	return keys
}

// fenceWait is the maximum time for which a new process, or a new owner of a partition, waits for
// transactions of earlier ones. After this time it terminates their connections.
const fenceWait = "2s"

// Load implements stream.TransactionalSink. It waits if the server is not running yet. While Load
// reads the ledger, the lanes connect. They then prepare their statements in the background, which
// saves their first batches about 30 ms.
func (s *Sink) Load(ctx context.Context) ([]stream.Mark, error) {
	// Each lane connects, and the server starts its process. The ledger gets its connection first,
	// in case connections are scarce.
	ahead := sync.OnceFunc(func() { s.Ahead("postgres", nil) })
	marks, err := s.Await(ctx, func(ctx context.Context) ([]stream.Mark, error) {
		marks, err := s.Attempt(ctx, ahead)
		if waited(err) {
			s.evict(ctx, []int64{s.fence})
		}
		return marks, err
	}, transient)
	if err != nil {
		return nil, err
	}
	s.Ahead("postgres", func(ctx context.Context, c *conn, w sqlspan.Writer[*conn]) error {
		// the server plans the statements; Restore rolls back
		_, err := w.Enter(ctx, c, &stream.Batch{}, s.Shape.Known() != nil)
		return err
	})
	return marks, nil
}

// Take implements stream.PartitionLedger: it begins a new epoch of each partition, so that
// transactions of earlier owners cannot commit. It makes one attempt. If a transaction of an
// earlier owner does not end within fenceWait, Take terminates its connection and returns an error.
// Another call can then succeed.
func (s *Sink) Take(ctx context.Context, parts []stream.Taking) ([]stream.Taken, error) {
	taken, err := s.connections.Take(ctx, parts)
	if waited(err) {
		ids := make([]string, len(parts))
		for i := range parts {
			ids[i] = parts[i].Part.ID
		}
		s.evict(ctx, append(s.partFences(ids), s.fence))
	}
	return taken, err
}

// evict terminates connections of earlier processes or owners whose transactions have not ended
// within fenceWait. keys are the advisory locks that these transactions hold.
func (s *Sink) evict(ctx context.Context, keys []int64) {
	err := s.Change(ctx, func(ctx context.Context, c *conn) error {
		var ended int64
		if err := c.QueryRow(ctx, evictFenced, keys).Scan(&ended); err != nil {
			return err
		}
		s.host.Log().Warn("connections of an earlier process of this route were ended",
			"connections", ended)
		return nil
	})
	if err != nil {
		s.host.Log().Warn("connections of an earlier process of this route lock its ledger and "+
			"cannot be ended", "error", err)
	}
}
