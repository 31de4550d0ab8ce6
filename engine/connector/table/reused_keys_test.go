package table_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
)

// finite reads and settles all rows, and returns the error that ended the reader.
func (l *routeSim) finite() error {
	l.t.Helper()
	l.once = true
	r := l.open()
	defer r.Close()
	for {
		texts, spans, err := l.next(r)
		l.settle(spans, texts)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fillRows inserts the rows from first to last, with the round in their note.
func fillRows(t *testing.T, w fixture, insert string, first, last int, round string) {
	t.Helper()
	values := make([]string, 0, last-first+1)
	for i := first; i <= last; i++ {
		values = append(values, fmt.Sprintf(insert, i, fmt.Sprintf("%s %d", round, i)))
	}
	execute(t, w.db, "INSERT INTO t VALUES "+strings.Join(values, ", "))
}

const (
	plain    = "id integer PRIMARY KEY, note text, at text"
	numbered = "id integer PRIMARY KEY AUTOINCREMENT, note text, at text"
	composed = "shop integer NOT NULL, id integer NOT NULL, note text, PRIMARY KEY (shop, id)"
	oneKey   = "(%d, '%s', NULL)"
	twoKeys  = "(7, %d, '%s')"
)

// reuses are changes to a table of 100 rows between two runs. The second run must not lose rows: it
// delivers every new row or stops.
var reuses = []struct {
	name, make, insert string
	order              []string
	rescan             int
	between            func(t *testing.T, w fixture)
	want               string // part of the error; "" for none
	rows               int    // delivered by both runs
}{
	{"all deleted, fewer inserted", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
		fillRows(t, w, oneKey, 1, 30, "second")
	}, `the keys of the table "t" started over: from (id 15) to the ` +
		`position (id 100)`, 100},
	{"all deleted, as many inserted", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
		fillRows(t, w, oneKey, 1, 100, "second")
	}, "started over: from (id 85)", 100},
	{"all deleted, more inserted", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
		fillRows(t, w, oneKey, 1, 390, "second")
	}, "started over: from (id 85)", 100},
	{"end deleted, fewer inserted", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t WHERE id > 90")
		fillRows(t, w, oneKey, 91, 91, "second")
	}, "started over: from (id 91)", 100},
	{"end deleted, more inserted", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t WHERE id > 90")
		fillRows(t, w, oneKey, 91, 120, "second")
	}, "started over: from (id 91)", 100},
	{"the same note in every row", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
		for i := range 100 {
			execute(t, w.db, "INSERT INTO t VALUES (?, 'constant', NULL)", i+1)
		}
	}, "started over", 100},
	{"two columns", composed, twoKeys, []string{"shop", "id"}, 1000,
		func(t *testing.T, w fixture) {
			execute(t, w.db, "DELETE FROM t")
			fillRows(t, w, twoKeys, 1, 60, "second")
		}, "started over: from (shop 7, id 45) to the position " +
			"(shop 7, id 100)", 100},
	{"far below what is remembered", plain, oneKey, nil, 20, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
		fillRows(t, w, oneKey, 1, 30, "second")
	}, `the keys of the table "t" may have started over: its last row is (id 30), ` +
		`before the position (id 100)`, 100},
	{"emptied", plain, oneKey, nil, 20, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
	}, "", 100},
	{"end deleted", plain, oneKey, nil, 20, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t WHERE id > 85")
	}, "", 100},
	{"one row left of a table whose numbers go on", numbered, oneKey, nil, 20,
		func(t *testing.T, w fixture) { execute(t, w.db, "DELETE FROM t WHERE id <> 5") }, "", 100},
	{"numbers that go on", numbered, oneKey, nil, 20, func(t *testing.T, w fixture) {
		execute(t, w.db, "DELETE FROM t")
		execute(t, w.db, "INSERT INTO t (note) VALUES ('second'), ('third')")
	}, "", 102},
	{"every row updated in one column", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "UPDATE t SET at = 'done ' || id")
		execute(t, w.db, "DELETE FROM t WHERE id > 97")
	}, "", 100},
	{"one row updated in all columns", plain, oneKey, nil, 1000, func(t *testing.T, w fixture) {
		execute(t, w.db, "UPDATE t SET at = 'done ' || id, note = 'other' WHERE id = 100")
	}, "", 100},
}

func TestReusedKeysBetweenRuns(t *testing.T) {
	t.Parallel()
	for _, c := range reuses {
		t.Run(c.name, func(t *testing.T) {
			w := sqliteFixture(t)
			execute(t, w.db, "CREATE TABLE t ("+c.make+")")
			fillRows(t, w, c.insert, 1, 100, "first")
			l := newRouteSim(t, w, c.rescan)
			l.order = c.order
			if err := l.finite(); err != nil {
				t.Fatal(err)
			}
			c.between(t, w)
			for range 2 { // the error repeats
				err := l.finite()
				if c.want == "" && err != nil ||
					c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("second run: %v, want ... %s", err, c.want)
				}
			}
			l.exactlyOnce(c.rows)
		})
	}
}

// TestReusedKeysSeen checks a table that reuses keys after a run has found it empty. Every row must
// be delivered. A queue with an INTEGER PRIMARY KEY behaves like this.
func TestReusedKeysSeen(t *testing.T) {
	t.Parallel()
	for _, rescan := range []int{1000, 8} {
		t.Run(fmt.Sprint("rescan ", rescan), func(t *testing.T) {
			w := sqliteFixture(t)
			execute(t, w.db, "CREATE TABLE t ("+plain+")")
			l := newRouteSim(t, w, rescan)
			all := 0
			for round, rows := range []int{100, 10, 5, 250, 30} {
				for range rows {
					execute(t, w.db, "INSERT INTO t (note) VALUES (?)",
						fmt.Sprint("round ", round, " row ", all))
					all++
				}
				if err := l.finite(); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				execute(t, w.db, "DELETE FROM t")
				if err := l.finite(); err != nil {
					t.Fatalf("round %d, empty: %v", round, err)
				}
			}
			l.exactlyOnce(all)
		})
	}
}

// TestReusedKeysIgnored checks reused_keys: ignore. A new row with the key of a deleted row counts
// as an update, and is not delivered. But it is delivered if an earlier run has noticed that the
// key was free.
func TestReusedKeysIgnored(t *testing.T) {
	t.Parallel()
	for _, rescan := range []int{1000, 20} {
		w := sqliteFixture(t)
		set := w.set
		w.set = func(o *table.Options) { set(o); o.ReusedKeys = "ignore" }
		execute(t, w.db, "CREATE TABLE t ("+plain+")")
		fillRows(t, w, oneKey, 1, 100, "first")
		l := newRouteSim(t, w, rescan)
		l.run()
		execute(t, w.db, "DELETE FROM t")
		fillRows(t, w, oneKey, 1, 30, "second")
		if err := l.finite(); err != nil {
			t.Error(err)
		}
		fillRows(t, w, oneKey, 31, 50, "second")
		if err := l.finite(); err != nil {
			t.Error(err)
		}
		l.exactlyOnce(120) // the keys above 30 were observed to be free
	}
}

// TestChangingView checks that all values of a view may change while its rows stay the same.
func TestChangingView(t *testing.T) {
	t.Parallel()
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE sale (day integer NOT NULL, amount integer)")
	execute(t, w.db, "CREATE VIEW t AS SELECT day, sum(amount) total FROM sale GROUP BY day")
	execute(t, w.db, "INSERT INTO sale VALUES (1, 5)")
	l := newRouteSim(t, w, 1000)
	l.order = []string{"day"}
	for day := 1; day < 4; day++ {
		if err := l.finite(); err != nil {
			t.Fatal(err)
		}
		execute(t, w.db, "INSERT INTO sale SELECT day, 7 FROM t UNION ALL SELECT ?, 5", day+1)
	}
	l.exactlyOnce(3)
}

// TestReuseWarning checks that a warning is logged at the start if the schema allows reused keys.
func TestReuseWarning(t *testing.T) {
	for _, c := range []struct {
		make  string
		order []string
		warns bool
	}{
		{"id INTEGER PRIMARY KEY, a text", nil, true},
		{"id INTEGER PRIMARY KEY AUTOINCREMENT, a text", nil, false},
		{"id INT PRIMARY KEY NOT NULL, a text", nil, false},
		{"id INTEGER PRIMARY KEY, a text NOT NULL", []string{"a", "id"}, false},
	} {
		w := sqliteFixture(t)
		execute(t, w.db, "CREATE TABLE t ("+c.make+")")
		var log bytes.Buffer
		o := table.DefaultOptions()
		w.set(o)
		o.Table, o.OrderBy = "t", c.order
		s, err := table.New(*o, logging{connectortest.NewHost(t),
			slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Open(t.Context(), stream.OpenOptions{
			Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if warned := strings.Contains(log.String(), "without AUTOINCREMENT"); warned != c.warns {
			t.Errorf("%s: warned %v\n%s", c.make, warned, &log)
		}
	}
}

// logging is a host with a log that the test reads.
type logging struct {
	stream.Host
	log *slog.Logger
}

func (l logging) Log() *slog.Logger { return l.log }

// truncated checks that TRUNCATE ... RESTART IDENTITY between two runs stops the route, and is
// harmless if the table was observed empty.
func truncated(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY "+
		"KEY, note text)")
	insert := func(rows int, round string) {
		execute(t, w.db, "INSERT INTO t (note) SELECT $1 || ' ' || i FROM "+
			"generate_series(1, $2::int) i", round, rows)
	}
	for _, rescan := range []int{1000, 20} {
		l := newRouteSim(t, w, rescan)
		execute(t, w.db, "TRUNCATE t RESTART IDENTITY")
		insert(100, "first")
		if err := l.finite(); err != nil {
			t.Fatal(err)
		}
		execute(t, w.db, "TRUNCATE t RESTART IDENTITY")
		if err := l.finite(); err != nil {
			t.Fatal(err)
		}
		insert(30, "second")
		if err := l.finite(); err != nil {
			t.Fatal(err)
		}
		l.exactlyOnce(130)
		insert(120, "third")
		if err := l.finite(); err != nil {
			t.Fatal(err)
		}
		l.exactlyOnce(250)
		execute(t, w.db, "TRUNCATE t RESTART IDENTITY")
		insert(40, "fourth")
		if err := l.finite(); err == nil || !strings.Contains(err.Error(), "started over") {
			t.Errorf("rescan %d: %v, want an error", rescan, err)
		}
		execute(t, w.db, "TRUNCATE t CONTINUE IDENTITY")
		insert(5, "fifth")
		execute(t, w.db, "UPDATE t SET note = note || '!'")
	}
	execute(t, w.db, "TRUNCATE t RESTART IDENTITY")
	insert(100, "first")
	l := newRouteSim(t, w, 20)
	l.run()
	execute(t, w.db, "DELETE FROM t WHERE id <> 3")
	if err := l.finite(); err != nil { // the sequence continues, so the remaining row is an old one
		t.Error(err)
	}
	insert(10, "second")
	l.run()
	l.exactlyOnce(110)
}

// lowersAutoIncrement checks a server that continues from the greatest existing key. MariaDB before
// 10.2.4 does so after a restart. Every version does so after ALTER TABLE ... AUTO_INCREMENT.
func lowersAutoIncrement(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (id bigint AUTO_INCREMENT PRIMARY KEY, note varchar(50))")
	l := newRouteSim(t, w, 1000)
	for i := range 50 {
		execute(t, w.db, fmt.Sprintf("INSERT INTO t (note) VALUES ('first %d')", i))
	}
	l.run()
	execute(t, w.db, "DELETE FROM t WHERE id > 40; ALTER TABLE t AUTO_INCREMENT = 41")
	l.run()
	for i := range 5 {
		execute(t, w.db, fmt.Sprintf("INSERT INTO t (note) VALUES ('second %d')", i))
	}
	l.run()
	l.exactlyOnce(55)
	execute(t, w.db, "DELETE FROM t WHERE id > 40; ALTER TABLE t AUTO_INCREMENT = 41; "+
		"INSERT INTO t (note) VALUES ('third')")
	if err := l.finite(); err == nil ||
		!strings.Contains(err.Error(), "started over: from (id 41)") {
		t.Errorf("%v, want an error", err)
	}
}

// TestQueue reuses keys while the source follows a table.
func TestQueue(t *testing.T) {
	t.Parallel()
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (id integer PRIMARY KEY, note text)")
	l := newRouteSim(t, w, 1000)
	l.dir = filepath.Join(t.TempDir(), "queue")
	r := l.open()
	defer r.Close()
	all := 0
	for range 3 {
		for range 5 {
			all++
			execute(t, w.db, "INSERT INTO t (note) VALUES (?)", fmt.Sprint("note ", all))
		}
		for len(l.got) < all {
			texts, spans, err := l.next(r)
			if err != nil {
				t.Fatal(err)
			}
			l.settle(spans, texts)
		}
		execute(t, w.db, "DELETE FROM t")
		empty(t, r)
	}
	l.exactlyOnce(all)
}

// TestReuseWithoutMemory checks runs with rescan: 0. A table that has reused its keys, because rows
// were deleted and then new ones inserted, must stop the route. A table whose keys continue must
// not.
func TestReuseWithoutMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		make string
		err  bool
	}{{plain, true}, {numbered, false}} {
		w := sqliteFixture(t)
		execute(t, w.db, "CREATE TABLE t ("+c.make+")")
		fillRows(t, w, oneKey, 1, 3, "first")
		l := newRouteSim(t, w, 0)
		r := l.open()
		defer r.Close()
		read := func(rows int) (err error) {
			for len(l.got) < rows && err == nil {
				var texts []string
				var spans []stream.Span
				texts, spans, err = nextWithin(t, r, 5*time.Second)
				l.settle(spans, texts)
			}
			return err
		}
		if err := read(3); err != nil {
			t.Fatal(err)
		}
		execute(t, w.db, "DELETE FROM t")
		empty(t, r)
		execute(t, w.db, "INSERT INTO t (note) VALUES ('second')")
		err := read(4)
		if over := err != nil && strings.Contains(err.Error(), "started over"); over != c.err ||
			!c.err && err != nil {
			t.Errorf("%s: %v", c.make, err)
		}
	}
}

// empty checks that a reader returns no row of an empty table for 1.5 s, many times the poll
// interval.
func empty(t *testing.T, r stream.Reader) {
	t.Helper()
	if texts, _, err := nextWithin(t, r, 1500*time.Millisecond); len(texts) > 0 || err == nil {
		t.Fatalf("rows of an empty table: %v, %v", texts, err)
	}
}
