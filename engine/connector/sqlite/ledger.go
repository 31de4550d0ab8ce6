package sqlite

import (
	"context"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

// dialectOf returns the SQL of the ledger's tables; see docs/formats/sql-tables.md. Each new
// process raises the epoch, a number in the ledger. SQLite has one writer at a time, so the epoch
// alone suffices to fence earlier processes.
func (s *Sink) dialectOf(string) sqlspan.Dialect {
	return sqlspan.Dialect{
		Place: fmt.Sprintf("table %s in %q", sqlspan.MarksTable, s.o.Path),
		Names: sqlspan.Beside(s.name),
		Present: sqlspan.Statement{
			SQL:  `SELECT count(*) = 3 FROM sqlite_schema WHERE name IN (?, ?, ?)`,
			Args: []any{sqlspan.RoutesTable, sqlspan.MarksTable, sqlspan.SpansTable},
		},
		Create: []string{
			`CREATE TABLE IF NOT EXISTS $routes (
				route TEXT NOT NULL PRIMARY KEY, format INTEGER NOT NULL, epoch INTEGER NOT NULL
			) WITHOUT ROWID`,
			`CREATE TABLE IF NOT EXISTS $marks (
				route TEXT NOT NULL, part TEXT NOT NULL, name TEXT NOT NULL, num INTEGER NOT NULL, key BLOB NOT NULL,
				PRIMARY KEY (route, part)
			) WITHOUT ROWID`,
			`CREATE TABLE IF NOT EXISTS $spans (
				route TEXT NOT NULL, part TEXT NOT NULL, from_num INTEGER NOT NULL, from_key BLOB NOT NULL,
				to_num INTEGER NOT NULL, to_key BLOB NOT NULL,
				PRIMARY KEY (route, part, from_num, from_key)
			) WITHOUT ROWID`,
		},
		Bump: `INSERT INTO $routes VALUES (?, ?, 1) ON CONFLICT (route) DO UPDATE SET epoch ` +
			`= epoch + 1`,
		SetMark: `INSERT INTO $marks VALUES (?, ?, ?, ?, ?) ON CONFLICT (route, part)
			DO UPDATE SET name = excluded.name, num = excluded.num, key = excluded.key WHERE (excluded.num, excluded.key) >= (num, key)`,
		Claim:      `INSERT INTO $marks VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		InsertSpan: `INSERT INTO $spans VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		PresentEpochs: sqlspan.Statement{
			SQL:  `SELECT count(*) = 1 FROM sqlite_schema WHERE name = ?`,
			Args: []any{sqlspan.EpochsTable},
		},
		CreateEpochs: `CREATE TABLE IF NOT EXISTS $epochs (
				route TEXT NOT NULL, part TEXT NOT NULL, epoch INTEGER NOT NULL,
				PRIMARY KEY (route, part)
			) WITHOUT ROWID`,
		RaiseEpoch: `INSERT INTO $epochs VALUES (?, ?, 1) ON CONFLICT (route, part) ` +
			`DO UPDATE SET epoch = epoch + 1`,
	}
}

// Load implements stream.TransactionalSink. It fences earlier processes with a new epoch, and
// returns the progress in the ledger.
func (s *Sink) Load(ctx context.Context) (marks []stream.Mark, err error) {
	err = s.use(ctx, func(c *connection) error {
		if marks, err = s.Ledger.Load(forever(), c); err != nil {
			return err
		}
		return s.find(c)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite %q: %w", s.o.Path, err)
	}
	return marks, nil
}

// Take implements stream.PartitionLedger. It begins a new epoch of each given partition, so that
// earlier owners can no longer write the partition's records.
func (s *Sink) Take(ctx context.Context, parts []stream.Taking) (taken []stream.Taken, err error) {
	err = s.use(ctx, func(c *connection) error {
		taken, err = s.Ledger.Take(forever(), c, parts, func() error { return s.find(c) })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite %q: %w", s.o.Path, err)
	}
	return taken, nil
}

// Compact implements stream.TransactionalSink. It raises the watermarks in the ledger to those in
// marks, and deletes the rows of the spans that they cover.
func (s *Sink) Compact(ctx context.Context, marks []stream.Mark) error {
	return s.use(ctx, func(c *connection) error { return s.Ledger.Compact(forever(), c, marks) })
}

// Prune implements stream.TransactionalSink. It deletes the ledger rows of deleted partitions.
func (s *Sink) Prune(ctx context.Context, ids []string) error {
	return s.use(ctx, func(c *connection) error { return s.Ledger.Prune(forever(), c, ids) })
}

// Store implements stream.TransactionalSink. It adds the spans of dead letters to the ledger.
func (s *Sink) Store(ctx context.Context, spans []stream.Span) error {
	return s.use(ctx, func(c *connection) error { return s.Ledger.Store(forever(), c, spans) })
}

// use calls f with the connection of the file. During this call, no other goroutine uses the
// connection.
func (s *Sink) use(ctx context.Context, f func(c *connection) error) error {
	return s.file.Do(ctx, 0, func(_ context.Context, c *connection) error { return f(c) })
}
