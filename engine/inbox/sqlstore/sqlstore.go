// Package sqlstore stores the keys of an inbox (see package inbox) in a table of SQLite or
// PostgreSQL. The key of a message is stored in the same transaction as the change that the message
// causes.
//
//	store, err := sqlstore.SQLite(db, sqlstore.Options{})
//	err = store.Create(ctx)
//	in, err := inbox.New(inbox.Options[*sql.Tx]{Store: store, ...})
//
// It works with any database/sql driver of these databases. Open SQLite with a busy timeout, such
// as _pragma=busy_timeout(5000) of modernc.org/sqlite. Without it, a change fails if another
// transaction is writing.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/penstock-io/penstock/inbox"
)

// DefaultTable is the default name of the table of keys.
const DefaultTable = "penstock_inbox"

// Options are the settings of a Store.
type Options struct {
	// Table is the name of the table of keys. "" means DefaultTable. In PostgreSQL it may include a
	// schema.
	Table string

	// Tx are the options of the transactions. Nil means isolation level Read Committed in
	// PostgreSQL, and the default of SQLite, which is serializable.
	Tx *sql.TxOptions
}

// Store implements inbox.Store with a database. It is safe for concurrent use.
type Store struct {
	db    *sql.DB
	table string
	index string
	types types
	tx    *sql.TxOptions
}

// types are the names of column types of a database.
type types struct{ text, bytes, integer string }

var _ inbox.Store[*sql.Tx] = (*Store)(nil)

var (
	tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,50}\.)?[A-Za-z_][A-Za-z0-9_]{0,50}$`)
	notInName = regexp.MustCompile(`[^A-Za-z0-9_]`)
)

// SQLite returns a store in a SQLite database.
func SQLite(db *sql.DB, o Options) (*Store, error) {
	return newStore(db, o, types{"text", "blob", "integer"})
}

// PostgreSQL returns a store in a PostgreSQL database.
func PostgreSQL(db *sql.DB, o Options) (*Store, error) {
	if o.Tx == nil {
		o.Tx = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return newStore(db, o, types{`text COLLATE "C"`, "bytea", "bigint"})
}

func newStore(db *sql.DB, o Options, t types) (*Store, error) {
	if db == nil {
		return nil, errors.New("sqlstore: the database is nil")
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if !tableName.MatchString(o.Table) {
		return nil, fmt.Errorf("sqlstore: Options.Table %q is not a name of letters, digits and "+
			"underscores", o.Table)
	}
	return &Store{db: db, table: o.Table,
		index: notInName.ReplaceAllString(o.Table, "_") + "_received", types: t, tx: o.Tx}, nil
}

// Create creates the table if it does not exist.
func (s *Store) Create(ctx context.Context) error {
	for _, query := range []string{
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (id %s PRIMARY KEY, digest %s NOT NULL, received %s NOT NULL)`,
			s.table, s.types.text, s.types.bytes, s.types.integer),
		fmt.Sprintf(`CREATE INDEX IF NOT EXISTS %s ON %s (received)`, s.index, s.table),
	} {
		if _, err := s.db.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("sqlstore: create table %s: %w", s.table, err)
		}
	}
	return nil
}

// Once implements inbox.Store. It inserts the key first, before the change. So another transaction
// with the same key waits until this transaction has ended.
func (s *Store) Once(ctx context.Context, key inbox.Key,
	change func(ctx context.Context, tx *sql.Tx) error,
) (inbox.Result, error) {
	tx, err := s.db.BeginTx(ctx, s.tx)
	if err != nil {
		return 0, fmt.Errorf("sqlstore: begin: %w", err)
	}
	defer tx.Rollback() // has no effect after Commit
	repeated, err := s.record(ctx, tx, key)
	switch {
	case err != nil:
		return 0, err
	case repeated:
		return inbox.Repeated, nil
	}
	if err := change(ctx, tx); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("sqlstore: commit: %w", err)
	}
	return inbox.Applied, nil
}

// record inserts a key. repeated reports whether the key already exists with the same digest.
func (s *Store) record(ctx context.Context, tx *sql.Tx, key inbox.Key) (repeated bool, err error) {
	query := fmt.Sprintf(
		`INSERT INTO %s (id, digest, received) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`,
		s.table)
	result, err := tx.ExecContext(ctx, query, key.ID, key.Digest[:], key.At.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("sqlstore: record the key: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil || n > 0 {
		return false, err
	}
	var digest []byte
	query = fmt.Sprintf(`SELECT digest FROM %s WHERE id = $1`, s.table)
	if err := tx.QueryRowContext(ctx, query, key.ID).Scan(&digest); err != nil {
		return false, fmt.Errorf("sqlstore: read the key: %w", err)
	}
	if string(digest) != string(key.Digest[:]) {
		return false, inbox.ErrKeyReused
	}
	return true, nil
}

// expireBatch is the maximum number of keys that one transaction of Expire deletes.
const expireBatch = 1000

// Expire deletes the keys that were received before t and returns their number. Choose t so that
// keys are kept for longer than the sender repeats a notification. If a notification is repeated
// after its key was deleted, it is applied again. Expire deletes in several small transactions, and
// stops early with an error when ctx is done.
func (s *Store) Expire(ctx context.Context, t time.Time) (deleted int64, err error) {
	query := fmt.Sprintf(
		`DELETE FROM %[1]s WHERE id IN (SELECT id FROM %[1]s WHERE received < $1 LIMIT %[2]d)`,
		s.table, expireBatch)
	for {
		result, err := s.db.ExecContext(ctx, query, t.UnixMilli())
		if err != nil {
			return deleted, fmt.Errorf("sqlstore: expire keys: %w", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return deleted, err
		}
		if deleted += n; n < expireBatch {
			return deleted, nil
		}
	}
}
