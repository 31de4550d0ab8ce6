package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/retry"
)

// rates are the rates of the bolts (workers) in tuples per second. They are those of scenario s01
// (docs/scenarios), and their sum is 655.
var rates = []float64{100, 100, 100, 100, 50, 50, 50, 50, 20, 20, 10, 5}

// row is one log record of the table.
type row struct {
	rt, id int64 // time in milliseconds of the day, and row number
	line   string
	gaps   int // stored ranges before this row
}

// place returns the position of the row. It consists of the row's time, and of the row's number as
// a text that sorts like the number.
func (r row) place() ledger.Position {
	return ledger.Position{Num: r.rt, Key: fmt.Sprintf("%016x", r.id)}
}

// source is the table of the day's logs.
type source struct{ db *sql.DB }

func openDB(path string) (*sql.DB, error) {
	at := (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+at+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

const day = 24 * 60 * 60 * 1000 // milliseconds

// makeLogs creates a database, and fills its table with rows that are spread over a day. Some rows
// have the same time. If the folder of the database is missing, makeLogs creates it.
func makeLogs(path string, rows int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	db, err := openDB(path)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, query := range []string{
		"CREATE TABLE logs (rt integer NOT NULL, id integer NOT NULL, line text NOT NULL, " +
			"PRIMARY KEY (rt, id)) WITHOUT ROWID",
		fmt.Sprintf(`WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < %[1]d) INSERT INTO logs
			SELECT (id - id %% 7) * %[2]d / %[1]d, id,
			'10.0.' || (id %% 250) || '.7 - - [05/Jan/2026:06:00:00 +0000] "GET /item/' || id || ' HTTP/1.1" '
			|| CASE id %% 50 WHEN 0 THEN 500 WHEN 1 THEN 404 ELSE 200 END || ' ' || (id %% 9000) FROM n`, rows, day),
	} {
		if _, err := db.Exec(query); err != nil {
			return fmt.Errorf("making the logs: %w", err)
		}
	}
	return nil
}

// page returns at most size rows, the first ones after the position from. If limit is set, it
// returns only rows up to limit.
func (s *source) page(ctx context.Context, from, limit ledger.Position, size int) ([]row, error) {
	at := func(p ledger.Position) (rt, id int64) {
		id, _ = strconv.ParseInt(p.Key, 16, 64) // "" is 0, before every row
		return p.Num, id
	}
	fromTime, fromID := at(from)
	toTime, toID := at(limit)
	if limit == (ledger.Position{}) {
		toTime = day + 1
	}
	if from == (ledger.Position{}) {
		fromTime = -1
	}
	const query = "SELECT rt, id, line FROM logs WHERE (rt, id) > (?, ?) AND (rt, id) <= (?, ?) " +
		"ORDER BY rt, id LIMIT ?"
	rows, err := s.db.QueryContext(ctx, query, fromTime, fromID, toTime, toID, size)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make([]row, 0, size)
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.rt, &r.id, &r.line); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// bolt is a worker: it parses and enriches rows and stores them. It processes one tuple at a time.
// The service time is random.
type bolt struct {
	name string
	w    *environment

	mu  sync.Mutex // held while a tuple is processed
	rnd *rand.Rand
	per time.Duration // mean service time of a tuple
}

// Deliver implements flow.Worker. It parses, enriches and stores the rows of a tuple.
func (b *bolt) Deliver(ctx context.Context, a flow.Attempt[*tuple]) (flow.Report, error) {
	parsed := make([]any, 0, columns*len(a.Value.rows))
	for _, r := range a.Value.rows {
		parts := strings.Fields(r.line)
		status := parts[8]
		class := map[byte]string{'2': "served", '4': "refused", '5': "broken"}[status[0]]
		parsed = append(parsed, r.id, parts[0], status, class)
	}
	return flow.Report{}, b.serve(ctx, parsed, a.Value)
}

// serve waits for the service time of the tuple, and then stores the tuple.
func (b *bolt) serve(ctx context.Context, parsed []any, t *tuple) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := retry.Sleep(ctx, time.Duration(b.rnd.ExpFloat64()*float64(b.per))); err != nil {
		return err
	}
	return b.w.store(parsed, t)
}

// environment has everything that both algorithms (see main.go) need: the logs of the day, twelve
// bolts of unequal speed, and the database in which the bolts store rows.
type environment struct {
	dir         string
	rows, tuple int
	logs        *source
	bolts       []*bolt

	mu     sync.Mutex // guards the fields below
	stored *sql.DB
	log    *os.File
}

const columns = 4

func openEnvironment(dir, logs string, rows, tuple int, speed float64) (*environment, error) {
	w := &environment{dir: dir, rows: rows, tuple: tuple}
	db, err := openDB(logs)
	if err != nil {
		return nil, err
	}
	w.logs = &source{db}
	if w.stored, err = openDB(filepath.Join(dir, "stored.db")); err != nil {
		return nil, err
	}
	if _, err := w.stored.Exec("CREATE TABLE IF NOT EXISTS stored (id integer, host text, status " +
		"integer, class text)"); err != nil {
		return nil, err
	}
	if w.log, err = os.OpenFile(filepath.Join(dir, "events.ndjson"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	for i, r := range rates {
		w.bolts = append(w.bolts, &bolt{
			name: fmt.Sprintf("bolt-%02d", i+1), w: w, rnd: rand.New(rand.NewPCG(1, uint64(i))),
			per: time.Duration(float64(time.Second) / r / speed),
		})
	}
	return w, nil
}

// mark describes the stored rows: those up to Watermark, and those in the ranges Above it.
type mark struct {
	Watermark ledger.Position
	Above     []ledger.Range
}

// load reads the mark that an earlier process has saved.
func (w *environment) load() (m mark, err error) {
	text, err := os.ReadFile(filepath.Join(w.dir, "mark.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil // nothing was saved, so start at the beginning of the day
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("reading the mark: %w", err)
	}
	return m, nil
}

// save writes the mark, which states the stored rows, to a file. If the write fails, the file keeps
// the earlier mark. A restart then stores the rows again that are missing in it.
func (w *environment) save(m mark) {
	text, _ := json.Marshal(m)
	path := filepath.Join(w.dir, "mark.json")
	if os.WriteFile(path+".new", text, 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}

func (w *environment) failed(_ context.Context, _ flow.Item[*tuple], f flow.Failure) {
	fmt.Fprintln(os.Stderr, "not stored, and sent again:", f.Lane, f.Err)
}

// event is a line of the file in which a run records its progress.
type event struct {
	At      int64     `json:"at"`                // Unix time in nanoseconds
	Rows    int       `json:"rows,omitempty"`    // number of rows that were stored
	Took    float64   `json:"took,omitempty"`    // milliseconds from packing to storing the tuple
	Windows []float64 `json:"windows,omitempty"` // window of each bolt
}

// store inserts the rows of a tuple in one transaction, and appends an event to the log file of the
// run, events.ndjson.
func (w *environment) store(parsed []any, t *tuple) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	tx, err := w.stored.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	const most = 100                     // maximum number of rows of a statement
	for len(parsed) > 0 {
		n := min(most, len(parsed)/columns)
		query := "INSERT INTO stored VALUES " + strings.Repeat("(?,?,?,?),", n-1) + "(?,?,?,?)"
		if _, err := tx.Exec(query, parsed[:n*columns]...); err != nil {
			return err
		}
		parsed = parsed[n*columns:]
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	now := time.Now()
	return w.logEvent(event{At: now.UnixNano(), Rows: len(t.rows),
		Took: float64(now.Sub(t.packed)) / float64(time.Millisecond)})
}

func (w *environment) logEvent(e event) error {
	text, err := json.Marshal(e)
	if err == nil {
		_, err = w.log.Write(append(text, '\n'))
	}
	return err
}

// watch records the windows of the bolts until ctx is done.
func (w *environment) watch(ctx context.Context, s *flow.Sender[*tuple]) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			e := event{At: now.UnixNano(), Windows: make([]float64, len(w.bolts))}
			status, names := s.Status()
			for _, l := range status.Lanes {
				for i, b := range w.bolts {
					if b.name == names[l.Lane] {
						e.Windows[i] = l.Window
					}
				}
			}
			w.mu.Lock()
			_ = w.logEvent(e) // without it, only a point of the plot is missing
			w.mu.Unlock()
		}
	}
}
