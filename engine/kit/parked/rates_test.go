package parked_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

const (
	rateHosts = 10_000
	rateBatch = 500 // rows of one insert, as the sink has them
	rateTake  = 256 // rows of one change
)

// TestRates compares a store that holds PENSTOCK_PARKED_ROWS rows with a bare loop of the same
// statements on the same file. The store must insert and take deliveries at least half as fast as
// the loop. `make parked-bench` runs this test.
func TestRates(t *testing.T) {
	rows, err := strconv.Atoi(os.Getenv("PENSTOCK_PARKED_ROWS"))
	if err != nil {
		t.Skip("skipped: PENSTOCK_PARKED_ROWS is no number of rows")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, parked.FileName)
	s, err := parked.Open(t.Context(), parked.Options{Path: at, MaxBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	next := fill(t, s, 0, rows, 5000)
	t.Logf("%d rows parked in %v", rows, time.Since(begun).Round(time.Second))
	sample := max(20_000, min(rows/20, 100_000))
	inserted := perSecond(t, sample, func() { next = fill(t, s, next, sample, rateBatch) })
	taken := perSecond(t, sample, func() { take(t, s, sample) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b := openBare(t, at)
	bareInserted := perSecond(t, sample, func() { b.insert(t, next, sample) })
	bareTaken := perSecond(t, sample, func() { b.take(t, sample) })
	info, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf(
		"%d rows, %d MiB: insert %.0f rows/s, bare loop %.0f (%.2f); take %.0f rows/s, bare loop %.0f (%.2f)",
		rows,
		info.Size()>>20,
		inserted,
		bareInserted,
		inserted/bareInserted,
		taken,
		bareTaken,
		taken/bareTaken,
	)
	if inserted < bareInserted/2 || taken < bareTaken/2 {
		t.Error("the store is slower than half of a bare loop")
	}
}

func perSecond(t *testing.T, n int, do func()) float64 {
	t.Helper()
	begun := time.Now()
	do()
	return float64(n) / time.Since(begun).Seconds()
}

// rateRow is a row of about 700 bytes. Rows of one host are far from each other.
func rateRow(n int) parked.Row {
	r := parked.Row{
		Partition: "f-1",
		Position:  stream.Position{Num: int64(n)},
		File:      "orders.ndjson",
		Weight:    1,
		Key:       fmt.Sprintf("order-%d", n),
		Host:      fmt.Sprintf("m%d.example:443", n%rateHosts),
		URL:       "https://m.example/paid",
		Method:    "POST",
		Start:     start,
	}
	r.Body = fmt.Appendf(nil, `{"order":%d,"note":%q}`, n, strings.Repeat("x", 500))
	return r
}

func fill(t *testing.T, s *parked.Store, from, n, batch int) int {
	t.Helper()
	for left := n; left > 0; left -= batch {
		rows := make([]parked.Row, min(batch, left))
		for i := range rows {
			rows[i] = rateRow(from + i)
		}
		add(t, s, rows)
		from += len(rows)
	}
	return from
}

// take accepts deliveries of one host after the other.
func take(t *testing.T, s *parked.Store, n int) {
	t.Helper()
	page, err := s.Hosts(t.Context(), 0, rateHosts)
	if err != nil {
		t.Fatal(err)
	}
	var changes []parked.Change
	for _, h := range page.Hosts {
		due, err := s.Due(t.Context(), h.ID, start, 16)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due[:min(len(due), n)] {
			p := step(t, d.Progress, payment, parked.Begin, start, 0)
			p = step(t, p, payment, parked.Accept, start, 0)
			entries := []parked.Entry{{At: start, Event: "accept", Status: 200, Body: "success"}}
			changes = append(changes, parked.Change{Delivery: d, To: p, Entries: entries})
			n--
		}
		if len(changes) < rateTake && n > 0 {
			continue
		}
		if _, err := s.Record(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		if changes = nil; n == 0 {
			return
		}
	}
	t.Fatalf("%d deliveries are missing", n)
}

// bare is a loop over the same file, by the same driver and with the same settings.
type bare struct {
	db *sql.DB
}

func openBare(t *testing.T, at string) *bare {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+at+
		"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return &bare{db}
}

// within runs do in a transaction, with a prepared statement.
func (b *bare) within(
	t *testing.T,
	statement string,
	do func(context.Context, *sql.Tx, *sql.Stmt) error,
) {
	t.Helper()
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := tx.PrepareContext(t.Context(), statement)
	if err == nil {
		err = do(t.Context(), tx, prepared)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bare) insert(t *testing.T, from, n int) {
	t.Helper()
	const insert = `INSERT INTO deliveries (part, num, keyset, sub, state, attempt, forced, start,
		due, ended, host, weight, bytes, hash, key, url, method, header, signer, file, body)
		VALUES (1,?,'',0,0,0,0,?,?,0,?,1,900,?,?,?,'POST','','','orders.ndjson',?)`
	for left := n; left > 0; left -= rateBatch {
		b.within(t, insert, func(ctx context.Context, _ *sql.Tx, s *sql.Stmt) error {
			for range min(rateBatch, left) {
				r := rateRow(from)
				_, err := s.ExecContext(
					ctx,
					from,
					start.UnixMilli(),
					start.UnixMilli(),
					1+from%rateHosts,
					int64(from)*-7046029254386353131,
					r.Key,
					r.URL,
					r.Body,
				)
				if err != nil {
					return err
				}
				from++
			}
			return nil
		})
	}
}

func (b *bare) take(t *testing.T, n int) {
	t.Helper()
	const history = `INSERT INTO history VALUES (?,1,?,'accept',0,200,'','success')`
	for host := rateHosts; n > 0 && host > 0; {
		b.within(t, history, func(ctx context.Context, tx *sql.Tx, s *sql.Stmt) error {
			for done := 0; done < rateTake && host > 0 && n > 0; host-- {
				ids, err := dueOf(ctx, tx, host)
				if err != nil {
					return err
				}
				for _, id := range ids[:min(len(ids), n)] {
					const end = `UPDATE deliveries SET state = 1, ended = ? WHERE id = ?`
					if _, err := tx.ExecContext(ctx, end, start.UnixMilli(), id); err != nil {
						return err
					}
					if _, err := s.ExecContext(ctx, id, start.UnixMilli()); err != nil {
						return err
					}
					done++
					n--
				}
			}
			return nil
		})
	}
	if n > 0 {
		t.Fatalf("%d deliveries are missing", n)
	}
}

// dueOf reads deliveries of a host whole, as a sender needs them.
func dueOf(ctx context.Context, tx *sql.Tx, host int) (ids []int64, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, key, url, method, header, body FROM deliveries
		WHERE host = ? AND state = 0 AND due <= ? ORDER BY due LIMIT 16`, host, start.UnixMilli())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var key, to, method, header string
		var body []byte
		if err := rows.Scan(&id, &key, &to, &method, &header, &body); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
