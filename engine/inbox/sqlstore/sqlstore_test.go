package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/inbox/sqlstore"
	"github.com/penstock-io/penstock/inbox"
)

// openSQLite opens a database as the documentation says.
func openSQLite(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func dataSource(path string) string {
	return "file:" + path +
		"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
}

func execute(t testing.TB, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

func number(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSQLite(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "shop.db"))
	check(t, db, func() (*sqlstore.Store, error) { return sqlstore.SQLite(db, sqlstore.Options{}) })
}

func TestPostgreSQL(t *testing.T) {
	server := connectortest.StartServer(t, "postgres", "psql")
	db := connectortest.OpenDatabase(t, "pgx", server.URL)
	check(t, db, func() (*sqlstore.Store, error) {
		return sqlstore.PostgreSQL(db, sqlstore.Options{Table: "public.inbox"})
	})
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			execute(t, db, `DROP TABLE payments; DROP TABLE public.inbox`)
			s, err := sqlstore.PostgreSQL(db,
				sqlstore.Options{Table: "public.inbox", Tx: &sql.TxOptions{Isolation: level}})
			prepare(t, db, s, err)
			atOnce(t, db, s)
		})
	}
}

func prepare(t *testing.T, db *sql.DB, s *sqlstore.Store, err error) {
	t.Helper()
	for range 2 { // Create may be called again
		if err == nil {
			err = s.Create(t.Context())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, `CREATE TABLE payments (event text, amount bigint)`)
}

// pay is a change.
func pay(event string) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ($1, 1)`, event)
		return err
	}
}

func check(t *testing.T, db *sql.DB, open func() (*sqlstore.Store, error)) {
	s, err := open()
	prepare(t, db, s, err)
	ctx := t.Context()
	key := func(id string, digest byte) inbox.Key {
		return inbox.Key{ID: id, Digest: [32]byte{digest}, At: time.UnixMilli(1000)}
	}
	for n, c := range []struct {
		key    inbox.Key
		change func(ctx context.Context, tx *sql.Tx) error
		want   inbox.Result
		err    error
		rows   int64 // so far
	}{
		{key("a", 1), pay("a"), inbox.Applied, nil, 1},
		{key("a", 1), pay("a"), inbox.Repeated, nil, 1},
		{key("a", 2), pay("a"), 0, inbox.ErrKeyReused, 1},
		{key("A", 1), pay("A"), inbox.Applied, nil, 2},
		{key("b", 1), failing("b"), 0, errFailed, 2},
		{key("b", 1), pay("b"), inbox.Applied, nil, 3},
		{key("ü/日本 '\"", 1), pay("u"), inbox.Applied, nil, 4},
		{key("ü/日本 '\"", 1), pay("u"), inbox.Repeated, nil, 4},
	} {
		got, err := s.Once(ctx, c.key, c.change)
		if err != nil || c.err != nil {
			if !errors.Is(err, c.err) {
				t.Errorf("%d: %v, want %v", n, err, c.err)
			}
		} else if got != c.want {
			t.Errorf("%d: %v, want %v", n, got, c.want)
		}
		if rows := number(t, db, `SELECT count(*) FROM payments`); rows != c.rows {
			t.Errorf("%d: %d payments, want %d", n, rows, c.rows)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Once(ended, key("z", 1), pay("z")); err == nil {
		t.Error("a context that has ended commits")
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = s.Once(ctx, key("p", 1), func(ctx context.Context, tx *sql.Tx) error {
			_ = pay("p")(ctx, tx)
			panic("oops")
		})
	}()
	if r, err := s.Once(ctx, key("p", 1), pay("p")); r != inbox.Applied || err != nil {
		t.Errorf("after a panic: %v, %v", r, err)
	}
	atOnce(t, db, s)
	if n, err := s.Expire(ctx, time.UnixMilli(1000)); n != 0 || err != nil {
		t.Errorf("expired %d, %v; want 0", n, err)
	}
	if n, err := s.Expire(ctx, time.UnixMilli(1001)); n != 5 || err != nil {
		t.Errorf("expired %d, %v; want 5", n, err)
	}
	if r, err := s.Once(ctx, key("a", 1), pay("a")); r != inbox.Applied || err != nil {
		t.Errorf("after its key expired: %v, %v", r, err)
	}
}

var errFailed = errors.New("the change has failed")

func failing(event string) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(pay(event)(ctx, tx), errFailed)
	}
}

// atOnce delivers several notifications, each of them several times at once. Each must be applied
// once. When success is returned for a notification, it must be in the table.
func atOnce(t *testing.T, db *sql.DB, s *sqlstore.Store) {
	t.Helper()
	const events, times = 8, 6
	execute(t, db, `DELETE FROM payments`)
	var wg sync.WaitGroup
	var applied atomic.Int64
	for e := range events {
		event := fmt.Sprintf("event %d", e)
		for range times {
			wg.Go(func() {
				// A failed attempt, as by a serialization failure, is repeated by the sender.
				for range 200 {
					r, err := s.Once(t.Context(), inbox.Key{ID: event, At: time.UnixMilli(5000)},
						pay(event))
					if err != nil {
						continue
					}
					if r == inbox.Applied {
						applied.Add(1)
					}
					var n int
					if err := db.QueryRow(`SELECT count(*) FROM payments WHERE event = $1`,
						event).Scan(&n); err != nil || n != 1 {
						t.Errorf("%s was answered with success and is there %d times, %v", event, n,
							err)
					}
					return
				}
				t.Errorf("%s fails again and again", event)
			})
		}
	}
	wg.Wait()
	if n := number(t, db, `SELECT count(*) FROM payments`); n != events ||
		applied.Load() != events {
		t.Errorf("%d payments, %d calls applied one; want %d", n, applied.Load(), events)
	}
}

func TestBadOptions(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "x.db"))
	for _, table := range []string{"a b", "a;DROP TABLE x", "1a", "a.b.c", `"a"`, "."} {
		if _, err := sqlstore.SQLite(db, sqlstore.Options{Table: table}); err == nil {
			t.Errorf("table %q is accepted", table)
		}
	}
	if _, err := sqlstore.PostgreSQL(nil, sqlstore.Options{}); err == nil {
		t.Error("no database is accepted")
	}
	s, err := sqlstore.SQLite(db, sqlstore.Options{Table: "missing"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Once(t.Context(), inbox.Key{ID: "a"}, pay("a")); err == nil {
		t.Error("a missing table is no error")
	}
}
