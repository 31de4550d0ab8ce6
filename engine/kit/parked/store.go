package parked

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite" // registers the driver
	codes "modernc.org/sqlite/lib"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// FileName is the name of a store's file in its directory.
const FileName = "parked.sqlite"

// version is the version of the file's format; see docs/formats/parked.md.
const version = 2

const (
	busyWait  = 10 * time.Second // for another process's transaction
	readers   = 2                // connections in addition to the writer's
	pageCache = 8 << 10          // KiB of each connection
	groupSize = 64               // writes that share a commit
)

// DefaultMaxBytes bounds a store.
const DefaultMaxBytes = 10 << 30

// ErrFull means that rows would exceed the store's size limit.
var ErrFull = errors.New(
	"the parked store is full; raise parked.bytes, or wait until deliveries end",
)

// Options of a Store.
type Options struct {
	Path     string // of the file
	MaxBytes int64  // of all rows. Zero means DefaultMaxBytes.
}

// Store is a file with parked deliveries. It is safe for concurrent use, also by several processes:
// commands can read and change it while the sending process runs.
type Store struct {
	o     Options
	write *sql.DB // one connection
	read  *sql.DB
	stmt  statements // of write; only the leader uses them
	reads readStatements

	mu      sync.Mutex // guards the fields below
	queue   []*operation
	leading bool
	totals  Totals // as of the last commit of this process

	hosts map[string]int64 // ids by name; only the leader uses them
	parts map[string]int64 // ids by partition; only the leader uses them
}

// maxCachedNames bounds the number of cached ids of hosts, and that of partitions.
const maxCachedNames = 100_000

// upgrades[n] upgrades a file from version n to n+1. upgrades[0] creates the tables of a new file.
var upgrades = [version]string{create, addPolling}

const create = `
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO totals VALUES ('waiting',0),('done',0),('dead',0),('cancelled',0),('repeated',0),('bytes',0);
CREATE TABLE IF NOT EXISTS partitions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  part INTEGER NOT NULL, num INTEGER NOT NULL, keyset TEXT NOT NULL, sub INTEGER NOT NULL,
  state INTEGER NOT NULL, attempt INTEGER NOT NULL, forced INTEGER NOT NULL,
  start INTEGER NOT NULL, due INTEGER NOT NULL, ended INTEGER NOT NULL,
  host INTEGER NOT NULL, weight INTEGER NOT NULL, bytes INTEGER NOT NULL, hash INTEGER NOT NULL,
  key TEXT NOT NULL, url TEXT NOT NULL, method TEXT NOT NULL, header TEXT NOT NULL, signer TEXT NOT NULL, file TEXT NOT NULL,
  body BLOB NOT NULL, record BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS delivery_position ON deliveries (part, num, keyset, sub);
CREATE INDEX IF NOT EXISTS delivery_key ON deliveries (hash);
CREATE INDEX IF NOT EXISTS delivery_due ON deliveries (host, due) WHERE state = 0;
CREATE INDEX IF NOT EXISTS delivery_ended ON deliveries (ended) WHERE state > 0;
CREATE TABLE IF NOT EXISTS history (
  delivery INTEGER NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL, took INTEGER NOT NULL,
  status INTEGER NOT NULL, detail TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (delivery, n)
) WITHOUT ROWID;`

const addPolling = `
ALTER TABLE deliveries ADD COLUMN waits TEXT NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN location TEXT NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN accepted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN polls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN found TEXT NOT NULL DEFAULT '';
INSERT OR IGNORE INTO totals VALUES ('exhausted',0);`

// Open opens the store. If the file is missing, Open creates it; only the file's owner can access
// it.
func Open(ctx context.Context, o Options) (*Store, error) {
	f, err := os.OpenFile(o.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("parked store: %w", err)
	}
	return OpenExisting(ctx, o)
}

// OpenExisting is Open for a file that must exist.
func OpenExisting(ctx context.Context, o Options) (*Store, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	full, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("parked store: %w", err)
	}
	if _, err := os.Stat(full); err != nil {
		return nil, fmt.Errorf("parked store: %w", err)
	}
	path := (&url.URL{Path: filepath.ToSlash(full)}).EscapedPath()
	dsn := fmt.Sprintf(
		"file:%s?_txlock=immediate&_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)"+
			"&_pragma=synchronous(FULL)&_pragma=cache_size(-%d)",
		path,
		busyWait.Milliseconds(),
		pageCache,
	)
	s := &Store{o: o, hosts: make(map[string]int64), parts: make(map[string]int64)}
	if s.write, err = sql.Open("sqlite", dsn); err != nil {
		return nil, fmt.Errorf("parked store %s: %w", full, err)
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = sql.Open("sqlite", dsn+"&_pragma=query_only(1)"); err != nil {
		return nil, errors.Join(fmt.Errorf("parked store %s: %w", full, err), s.write.Close())
	}
	s.read.SetMaxOpenConns(readers)
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("parked store %s: %w", full, err), s.Close())
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	var err error
	stopped := retry.Do(ctx, func(ctx context.Context) error {
		err = s.upgrade(ctx)
		return err
	}, whileBusy)
	if stopped != nil {
		return cmp.Or(err, stopped)
	}
	if err := s.stmt.all().prepare(ctx, s.write); err != nil {
		return err
	}
	if err := s.reads.all().prepare(ctx, s.read); err != nil {
		return err
	}
	s.totals, err = s.Totals(ctx)
	return err
}

// whileBusy are the options for retrying the upgrade of a file to a newer format. The upgrade may
// fail while another process uses the file, because SQLite does not wait for the lock that it needs
// to switch a file to a write-ahead log.
var whileBusy = retry.Options{
	Policy: backoff.Fixed(20 * time.Millisecond), MaxElapsed: busyWait,
	Classify: func(err error) retry.Action {
		e, ok := errors.AsType[*sqlite.Error](err)
		if ok && e.Code()&0xFF == codes.SQLITE_BUSY {
			return retry.Retry
		}
		return retry.Fail
	},
}

// upgrade upgrades an empty or older file to the current version.
func (s *Store) upgrade(ctx context.Context) error {
	versionOf := func(from querier) (found int, err error) {
		err = from.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found)
		if err == nil && found > version {
			err = fmt.Errorf(
				"has version %d, but this program reads versions up to %d: use the newer program",
				found, version,
			)
		}
		return found, err
	}
	if found, err := versionOf(s.write); err != nil || found == version {
		return err
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	found, err := versionOf(tx) // another process may have upgraded it
	for ; err == nil && found < version; found++ {
		_, err = tx.ExecContext(ctx, upgrades[found])
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close closes the file. No other method may be running. It may be called twice.
func (s *Store) Close() error { return errors.Join(s.write.Close(), s.read.Close()) }

// Totals reads the counts of the deliveries by state from the file. They include changes by other
// processes.
func (s *Store) Totals(ctx context.Context) (Totals, error) { return readTotals(ctx, s.read) }

// Refresh updates LastTotals with the changes of other processes. It runs in the queue of writes,
// so it neither misses a commit of this process nor counts it twice.
func (s *Store) Refresh(ctx context.Context) error {
	return s.run(ctx, func(t *transaction) error {
		totals, err := readTotals(ctx, t.tx)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.totals = totals
		s.mu.Unlock()
		return nil
	})
}

func readTotals(ctx context.Context, from querier) (t Totals, err error) {
	rows, err := from.QueryContext(ctx, "SELECT name, n FROM totals")
	if err != nil {
		return t, err
	}
	defer rows.Close()
	to := t.fields()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return t, err
		}
		if f := to[name]; f != nil {
			*f = n
		}
	}
	return t, rows.Err()
}

// LastTotals returns the counts of the deliveries by state, as of the last commit of this process.
// They include changes by other processes up to the last Refresh, or up to Open if there was none.
func (s *Store) LastTotals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totals
}

// fields returns pointers to the counts in t, by the names that they have in the file.
func (t *Totals) fields() map[string]*int64 {
	return map[string]*int64{
		"waiting":   &t.Waiting,
		"done":      &t.Done,
		"dead":      &t.Dead,
		"cancelled": &t.Cancelled,
		"exhausted": &t.Exhausted,
		"repeated":  &t.Repeated,
		"bytes":     &t.Bytes,
	}
}

func (t *Totals) add(o Totals) {
	from := o.fields()
	for name, n := range t.fields() {
		*n += *from[name]
	}
}

// DataVersion returns a number that changes whenever another process has changed the file.
func (s *Store) DataVersion(ctx context.Context) (n int64, err error) {
	err = s.write.QueryRowContext(ctx, "PRAGMA data_version").Scan(&n)
	return n, err
}
