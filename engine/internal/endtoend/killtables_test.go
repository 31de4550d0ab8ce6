package endtoend

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// This file has the kill tests of tables. The program copies two tables and follows their changes.
// Meanwhile writers insert, change and delete rows in transactions that commit late, out of order,
// and with equal times. Program and server are killed repeatedly.
//
// Rows of `events` are only inserted. The program reads them in partitions of five seconds, some of
// them concurrently. Each row must be in the target once. Rows of `items` are also deleted or
// changed. A change gives a row a later time, so that the program reads the row again. The target
// must have the current version of every existing row. It may also have rows that were deleted in
// the source (docs/sources-table.md).

// arena is a database for a kill test.
type arena struct {
	db      *sql.DB
	from    string                             // the database in the options of the source
	to      func(table, options string) string // the sink for a table
	lag     time.Duration
	begin   string                     // statement that begins a writing transaction
	disturb func(t *testing.T)         // restarts the server; nil if there is none
	target  func(table string) *sql.DB // the database with the target table
}

func TestKillTables(t *testing.T) {
	share := killsOfSQL(t)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		path := func(table string) string { return filepath.Join(dir, table+".db") }
		targets := map[string]*sql.DB{
			"events_copy": connectortest.OpenSQLite(t, path("events_copy")),
			"items_copy":  connectortest.OpenSQLite(t, path("items_copy")),
		}
		a := arena{
			db: connectortest.OpenSQLite(t, path("source")), from: "sqlite: " + path("source"),
			begin: "BEGIN IMMEDIATE",
			to: func(table, options string) string {
				return fmt.Sprintf("sqlite: { path: %q, table: %s, %s }", path(table), table,
					options)
			},
			target: func(table string) *sql.DB { return targets[table] },
		}
		connectortest.Execute(t, a.db, "PRAGMA journal_mode = WAL")
		killTables(t, a, share)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := connectortest.StartServer(t, "postgres", "psql")
		killTables(t, serverArena(server, "postgres", "BEGIN", openPostgres(t, server.URL)), share)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		server := connectortest.StartServer(t, "mariadb", "mariadb-install-db")
		db, err := sql.Open("mysql", server.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		a := serverArena(server, "mysql", "START TRANSACTION", db)
		a.lag = 50 * time.Millisecond // shorter than many transactions, whose rows are found late
		killTables(t, a, share)
	})
}

// serverArena returns the fixture for copying from one table to another of the same server.
func serverArena(server *connectortest.Server, kind, begin string, db *sql.DB) arena {
	return arena{
		db: db, from: fmt.Sprintf("%s: %q", kind, server.URL), begin: begin,
		to: func(table, options string) string {
			return fmt.Sprintf("%s: { url: %q, table: %s, %s }", kind, server.URL, table, options)
		},
		target:  func(string) *sql.DB { return db },
		disturb: func(t *testing.T) { server.Kill(t); server.Start(t) },
	}
}

func killTables(t *testing.T, a arena, n int) {
	rnd := seeded(t)
	connectortest.Execute(t, a.db, "CREATE TABLE events (at bigint NOT NULL, id bigint NOT NULL "+
		"PRIMARY KEY, v varchar(200))")
	connectortest.Execute(t, a.db, "CREATE UNIQUE INDEX events_order ON events (at, id)")
	connectortest.Execute(t, a.db, "CREATE TABLE items (at bigint NOT NULL, id bigint NOT NULL "+
		"PRIMARY KEY, v varchar(200))")
	connectortest.Execute(t, a.db, "CREATE UNIQUE INDEX items_order ON items (at, id)")
	dir := t.TempDir()
	lag := ""
	if a.lag > 0 {
		lag = fmt.Sprintf(", lag: %v", a.lag)
	}
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  events:
    source: { table: { %[1]s, table: events, order_by: [at, id], split: 500, rescan: 100000, poll: 100ms%[3]s } }
    sink: { %[2]s }
    batch: { records: 50 }
    retry: { base: 20ms, max: 200ms }
    checkpoint: { sync: 50ms }
  items:
    source: { table: { %[1]s, table: items, order_by: [at, id], rescan: 100000, poll: 100ms%[3]s } }
    sink: { %[4]s }
    batch: { records: 50 }
    retry: { base: 20ms, max: 200ms }
    checkpoint: { sync: 50ms }
`, a.from, a.to("events_copy", "on_new_field: ignore"), lag, a.to("items_copy", "mode: upsert, key: [id], on_new_field: ignore")))
	w := startWriters(t, a, rnd)
	restarts := 0
	for done := 0; done < n; {
		restart := a.disturb != nil && (restarts == 0 && done == n-1 || rnd.IntN(12) == 0)
		if restart {
			restarts++
		}
		if killFollowing(t, a, config, rnd, restart) {
			done++
		}
	}
	late := func() int64 {
		return number(a.target("events_copy"),
			`SELECT coalesce(sum(num), 0) FROM penstock_marks WHERE part LIKE 'events%~late'`)
	}
	if n >= 10 { // with many kills it may never get near the end
		f := startFollowing(t, config)
		f.wait(t, time.Minute, func() bool { return late() > 0 })
		f.kill(t)
	}
	w.stop()
	once(t, config)
	parts := number(a.target("events_copy"),
		`SELECT count(*) FROM penstock_marks WHERE part LIKE 'events#500.%' AND part NOT `+
			`LIKE '%~late'`)
	if again := once(t, config); again.Pipelines[0].ReadRecords+again.Pipelines[1].ReadRecords !=
		0 {
		t.Errorf("rows were read again after the end: %+v", again.Pipelines)
	}
	checkCopies(t, a, w)
	if w.added.Load() == 0 || w.changed.Load() == 0 || w.deleted.Load() == 0 || parts == 0 ||
		late() == 0 && n >= 10 {
		t.Error("the writers did not do what the test is about")
	}
	t.Logf("%d kills, %d restarts of the server; %d rows added, %d changes, %d deleted; "+
		"%d events in %d partitions were found late",
		n, restarts, w.added.Load(), w.changed.Load(), w.deleted.Load(), late(), parts)
}

// checkCopies compares the targets with the sources by key, count and content.
func checkCopies(t *testing.T, a arena, w *writers) {
	t.Helper()
	query := "SELECT at, id, v FROM %s ORDER BY id, at"
	same(t, "events", texts(t, a.target("events_copy"), fmt.Sprintf(query, "events_copy")),
		texts(t, a.db, fmt.Sprintf(query, "events")))
	rows := func(db *sql.DB, query string) map[string]string {
		all := make(map[string]string)
		r, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for r.Next() {
			var id, row string
			if err := r.Scan(&id, &row); err != nil {
				t.Fatal(err)
			}
			if _, twice := all[id]; twice {
				t.Errorf("item %s is there twice", id)
			}
			all[id] = row
		}
		return all
	}
	concat := "SELECT id, at || ' ' || v FROM %s"
	if a.begin == "START TRANSACTION" {
		concat = "SELECT id, concat(at, ' ', v) FROM %s"
	}
	want, got := rows(a.db, fmt.Sprintf(concat, "items")),
		rows(a.target("items_copy"), fmt.Sprintf(concat, "items_copy"))
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] != want[id] {
			t.Errorf("item %s is %q in the target, want %q", id, got[id], want[id])
		}
	}
	for id := range got {
		if _, there := want[id]; !there && !w.wasDeleted(id) {
			t.Errorf("item %s is in the target and was never in the source", id)
		}
	}
}

// killFollowing starts the program, waits for some rows, and kills the program. It returns false if
// nothing was delivered in time.
func killFollowing(t *testing.T, a arena, config string, rnd *rand.Rand, restart bool) bool {
	t.Helper()
	f := startFollowing(t, config)
	delivered := func() int64 {
		return number(a.target("events_copy"), "SELECT count(*) FROM events_copy")
	}
	begun := delivered()
	more := func() { // waits for some more rows
		want := delivered() + 1 + int64(rnd.IntN(150))
		f.wait(t, 10*time.Second, func() bool { return delivered() >= want })
	}
	more()
	if restart {
		a.disturb(t)
		if rnd.IntN(2) == 0 { // the program must recover from it
			more()
		}
	}
	f.kill(t)
	return delivered() > begun
}

// following is a running program that follows the tables.
type following struct {
	cmd   *exec.Cmd
	errs  bytes.Buffer
	ended chan error
}

func startFollowing(t *testing.T, config string) *following {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	f := &following{cmd: exec.Command(bin, "run", config), ended: make(chan error, 1)}
	f.cmd.Stderr = &f.errs
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- f.cmd.Wait() }()
	return f
}

// wait waits until ok returns true, for at most a bound.
func (f *following) wait(t *testing.T, most time.Duration, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	bound := time.NewTimer(most)
	defer bound.Stop()
	for !ok() {
		select {
		case err := <-f.ended:
			t.Fatalf("the program ended by itself: %v\n%s", err, f.errs.String())
		case <-bound.C:
			return
		case <-poll.C:
		}
	}
}

func (f *following) kill(t *testing.T) {
	t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-f.ended
}

// writers change the tables until they are stopped.
type writers struct {
	a    arena
	end  context.CancelFunc
	done sync.WaitGroup

	ids                     atomic.Int64
	added, changed, deleted atomic.Int64

	mu   sync.Mutex // guards gone
	gone map[string]bool
}

const writersAtOnce = 4

func startWriters(t *testing.T, a arena, rnd *rand.Rand) *writers {
	ctx, end := context.WithCancel(context.Background())
	w := &writers{a: a, end: end, gone: make(map[string]bool)}
	for range writersAtOnce {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		w.done.Go(func() {
			for ctx.Err() == nil {
				// Ignore the error: while the server is down, transactions fail. Only rows of
				// committed transactions count as written.
				_ = w.transaction(ctx, own)
				pause(ctx, time.Duration(own.IntN(30))*time.Millisecond)
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

func (w *writers) stop() {
	w.end()
	w.done.Wait()
}

func (w *writers) wasDeleted(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[id]
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// transaction writes some rows with the same time, which is the start of the transaction or in the
// past. One transaction in four commits late, and one in ten is rolled back.
func (w *writers) transaction(ctx context.Context, rnd *rand.Rand) error {
	at := time.Now().UnixMilli() / 10 // coarse, so that many rows have equal times
	if rnd.IntN(10) == 0 {
		at -= int64(rnd.IntN(300)) // further in the past than the wait for transactions
	}
	conn, err := w.a.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	run := func(query string) error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), query)
		return err
	}
	if err := run(w.a.begin); err != nil {
		return err
	}
	added, changed := int64(0), int64(0)
	for range 1 + rnd.IntN(12) {
		id := w.ids.Add(1)
		for _, table := range []string{"events", "items"} {
			if err = run(fmt.Sprintf("INSERT INTO %s VALUES (%d, %d, 'row %d of %d''s')", table, at,
				id, id, at)); err != nil {
				break
			}
			added++
		}
	}
	if err == nil && rnd.IntN(2) == 0 { // moves the row to a later place
		id := 1 + rnd.Int64N(w.ids.Load())
		err = run(fmt.Sprintf("UPDATE items SET at = CASE WHEN at < %[1]d THEN %[1]d ELSE at + 1 "+
			"END, v = 'changed at %[1]d' "+
			"WHERE id = %[2]d", at, id))
		changed++
	}
	if err == nil && rnd.IntN(4) == 0 {
		id := 1 + rnd.Int64N(w.ids.Load())
		w.mu.Lock()
		w.gone[fmt.Sprint(id)] = true
		w.mu.Unlock()
		err = run(fmt.Sprintf("DELETE FROM items WHERE id = %d", id))
		w.deleted.Add(1)
	}
	if err == nil && rnd.IntN(4) == 0 {
		pause(ctx, time.Duration(rnd.IntN(300))*time.Millisecond)
	}
	if err != nil || rnd.IntN(10) == 0 {
		return run("ROLLBACK")
	}
	w.added.Add(added)
	w.changed.Add(changed)
	return run("COMMIT")
}
