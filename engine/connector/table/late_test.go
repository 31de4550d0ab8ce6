package table_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
)

// routeSim simulates a route over several readers. It settles some of the rows it reads. It keeps
// the marks (the stored progress of the partitions), and the number of times each row was settled.
type routeSim struct {
	t      *testing.T
	dir    string
	w      fixture
	once   bool
	order  []string
	rescan int
	marks  map[string]stream.Mark
	got    map[string]int // number of times each row was settled, by text
}

// newRouteSim returns a routeSim that remembers rescan rows, with its own state directory.
func newRouteSim(t *testing.T, w fixture, rescan int) *routeSim {
	return &routeSim{
		t: t, dir: filepath.Join(t.TempDir(), "state"), w: w, rescan: rescan,
		marks: map[string]stream.Mark{}, got: map[string]int{},
	}
}

func (l *routeSim) open() stream.Reader {
	l.t.Helper()
	s := newSource(l.t, connectortest.NewHost(l.t), func(o *table.Options) {
		l.w.set(o)
		o.Table, o.OrderBy, o.Poll, o.Rescan = "t", l.order, 10*time.Millisecond, l.rescan
	})
	r, err := s.Open(l.t.Context(), stream.OpenOptions{
		Route: "main", Once: l.once, State: stateIn(l.dir),
		Resume: func(id string) (stream.Mark, bool) { m, ok := l.marks[id]; return m, ok },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// settle adds the spans of a batch to the stored progress, and counts its rows. If earlier batches
// are not settled yet, the spans become ranges above the watermark.
func (l *routeSim) settle(spans []stream.Span, texts []string) {
	for _, s := range spans {
		m := l.marks[s.Part.ID]
		m.Part = *s.Part
		m.Above = append(m.Above, s.Range)
		slices.SortFunc(m.Above, func(a, b stream.Range) int { return a.From.Compare(b.From) })
		for len(m.Above) > 0 && m.Above[0].From == m.Watermark {
			m.Watermark, m.Above = m.Above[0].To, m.Above[1:]
		}
		l.marks[s.Part.ID] = m
	}
	for _, text := range texts {
		l.got[text]++
	}
}

// next reads a batch to be settled later. It copies the partitions, which the reader may change.
func (l *routeSim) next(r stream.Reader) ([]string, []stream.Span, error) {
	texts, spans, err := next(l.t, r)
	for i := range spans {
		part := *spans[i].Part
		spans[i].Part = &part
	}
	return texts, spans, err
}

// run performs a finite run, which reads and settles all rows.
func (l *routeSim) run() {
	l.t.Helper()
	l.once = true
	r := l.open()
	for {
		texts, spans, err := l.next(r)
		l.settle(spans, texts)
		if err != nil {
			break
		}
	}
	if err := r.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// exactlyOnce checks that each of the given number of rows was settled once.
func (l *routeSim) exactlyOnce(rows int) {
	l.t.Helper()
	if len(l.got) != rows {
		l.t.Errorf("%d different rows were handed out, want %d", len(l.got), rows)
	}
	for text, n := range l.got {
		if n != 1 {
			l.t.Errorf("%s was settled %d times", text, n)
		}
	}
}

// TestLate checks that rows with keys before the reader's position are found once. Runs are killed
// at random moments, when only some batches are settled.
func TestLate(t *testing.T) {
	t.Parallel()
	const seed, rounds = 3, 40
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (at integer NOT NULL, id integer NOT NULL, PRIMARY "+
		"KEY (at, id))")
	t.Logf("seed %d", seed)
	l := newRouteSim(t, w, 1000)
	l.once = true
	next := 0
	for round := range rounds {
		for range 1 + rnd.IntN(20) { // some far back, some with equal times
			next++
			execute(t, w.db, "INSERT INTO t VALUES (?, ?)",
				round/2*10-rnd.IntN(min(60, round*5+1)), next)
		}
		r := l.open()
		for {
			texts, spans, err := l.next(r)
			if err != nil {
				break
			}
			if rnd.IntN(3) > 0 {
				l.settle(spans, texts)
			}
			if rnd.IntN(6) == 0 {
				break // killed
			}
		}
		if err := r.Commit(t.Context(), []stream.Mark{l.marks["t"], l.marks["t~late"]}); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l.run()
	l.exactlyOnce(next)
	if late := l.marks["t~late"]; late.Watermark.Num == 0 {
		t.Error("no row was found late: the test does not test it")
	}
}

// pastRow checks that a row written before the current position is found, with or without
// information of the database about its transactions.
func pastRow(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (at bigint NOT NULL, id bigint NOT NULL, PRIMARY "+
		"KEY (at, id))")
	execute(t, w.db, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
	l := newRouteSim(t, w, 100)
	l.order = []string{"at", "id"}
	r := l.open()
	defer r.Close()
	for len(l.got) < 3 {
		texts, spans, err := l.next(r)
		if err != nil {
			t.Fatal(err)
		}
		l.settle(spans, texts)
	}
	execute(t, w.db, "INSERT INTO t VALUES (2, 7)")
	texts, spans, err := l.next(r)
	if err != nil || len(texts) != 1 || len(spans) != 1 || spans[0].Part.ID != "t~late" {
		t.Errorf("%v %v, %v; want one row of t~late", texts, spans, err)
	}
}

func TestPastRow(t *testing.T) { pastRow(t, sqliteFixture(t)) }

// TestLateBound checks that late rows are found only among the last rows, of which 20 are
// remembered here. Of two rows inserted after a run, the source must find 10985, but not 10005,
// which is far before them.
func TestLateBound(t *testing.T) {
	t.Parallel()
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (id integer PRIMARY KEY)")
	for i := 1000; i < 1100; i++ {
		execute(t, w.db, "INSERT INTO t VALUES (?)", i*10)
	}
	l := newRouteSim(t, w, 20)
	l.run()
	// one within the last 20 rows, one far before them
	execute(t, w.db, "INSERT INTO t VALUES (10985), (10005)")
	l.run()
	if l.got[`{"id":10985}`] != 1 || l.got[`{"id":10005}`] != 0 || len(l.got) != 101 {
		t.Errorf("%d rows, 10985 %d times, 10005 %d times", len(l.got), l.got[`{"id":10985}`],
			l.got[`{"id":10005}`])
	}
}

// TestLateInBulk checks 250 late rows (inserted before the position of the reader) next to each
// other, while the reader remembers only 20 rows. None must be lost. A crash while they are handed
// out must repeat none.
func TestLateInBulk(t *testing.T) {
	t.Parallel()
	const rescan, bulk, more = 20, 250, 100
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (id integer PRIMARY KEY)")
	series := "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) " +
		"INSERT INTO t SELECT %s FROM n"
	execute(t, w.db, fmt.Sprintf(series, 100, "i * 10000"))
	l := newRouteSim(t, w, rescan)
	read := func(r stream.Reader, rows int, settled func(part string) bool) {
		for rows > 0 {
			texts, spans, err := l.next(r)
			if err != nil {
				break
			}
			if rows -= len(texts); settled(spans[0].Part.ID) {
				l.settle(spans, texts)
			}
		}
	}
	r := l.open()
	read(r, 100, func(string) bool { return len(l.got) < 90 })
	// before the position that was read, and above the settled mark
	execute(t, w.db, fmt.Sprintf(series, bulk, "950000 + i"))
	read(r, bulk, func(part string) bool { return part == "t~late" })
	r.Close() // a crash
	l.run()
	// between two runs, within the last remembered rows
	execute(t, w.db, fmt.Sprintf(series, bulk, "955000 + i"))
	// and new rows that would displace them
	execute(t, w.db, fmt.Sprintf(series, more, "1000000 + i"))
	l.run()
	l.exactlyOnce(100 + 2*bulk + more)
}

// TestLostMemory deletes the journal, the file with the remembered rows. The source must repeat no
// row. It cannot find the late row that was inserted while there was no journal, but must find
// those that are inserted later.
func TestLostMemory(t *testing.T) {
	t.Parallel()
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (id integer PRIMARY KEY)")
	execute(t, w.db, "INSERT INTO t VALUES (10), (20), (30)")
	l := newRouteSim(t, w, 100)
	l.run()
	if err := os.RemoveAll(l.dir); err != nil {
		t.Fatal(err)
	}
	execute(t, w.db, "INSERT INTO t VALUES (15), (40)")
	l.run()
	execute(t, w.db, "INSERT INTO t VALUES (35), (50)")
	l.run()
	want := []string{"10", "20", "30", "35", "40", "50"}
	var got []string
	for text, n := range l.got {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(text, `{"id":`), "}"))
		if n != 1 {
			t.Errorf("%s was read %d times", text, n)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// lateTransactions checks PostgreSQL transactions that are open and may still write rows before the
// last row. The source must wait for these rows, and then read all rows in order.
func lateTransactions(t *testing.T, server *connectortest.Server) {
	w := postgresFixture(t, server)
	execute(t, w.db, "CREATE TABLE t (id serial PRIMARY KEY, note text)")
	slow := openPostgres(t, server.URL)
	tx, err := slow.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO t (note) VALUES ('slow')"); err != nil {
		t.Fatal(err)
	}
	execute(t, w.db, "INSERT INTO t (note) VALUES ('fast')")
	l := newRouteSim(t, w, 0)
	r := l.open()
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	b := stream.NewBatch(stream.BatchLimits{})
	if err := r.Read(ctx, b); err == nil || len(b.Records) > 0 {
		t.Fatalf("%d rows were handed out while a transaction was open that wrote before them",
			len(b.Records))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for len(all) < 2 {
		texts, _, err := next(t, r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, texts...)
	}
	if want := []string{`{"id":1,"note":"slow"}`, `{"id":2,"note":"fast"}`}; !slices.Equal(all, want) {
		t.Errorf("read %v, want %v", all, want)
	}
}

// notified checks that a notification wakes the source long before the next poll.
func notified(t *testing.T, server *connectortest.Server) {
	w := postgresFixture(t, server)
	execute(t, w.db, "CREATE TABLE t (id serial PRIMARY KEY)")
	s := newSource(t, connectortest.NewHost(t), func(o *table.Options) {
		w.set(o)
		o.Table, o.Poll, o.Notify = "t", time.Hour, "news"
	})
	r, err := s.Open(t.Context(), stream.OpenOptions{Resume: func(string) (stream.Mark, bool) {
		return stream.Mark{}, false
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		b := stream.NewBatch(stream.BatchLimits{})
		err := r.Read(ctx, b)
		if err == nil && len(b.Records) != 1 {
			err = fmt.Errorf("%d rows", len(b.Records))
		}
		got <- err
	}()
	for listening := 0; listening == 0; {
		if err := w.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE query " +
			"LIKE 'LISTEN%'").Scan(&listening); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, w.db, "INSERT INTO t DEFAULT VALUES; NOTIFY news")
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}
