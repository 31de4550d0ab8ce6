package table_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestSuiteSplit runs the checks of [connectortest.Source] on one table that is split into several
// partitions.
func TestSuiteSplit(t *testing.T) {
	db, path := openSQLite(t)
	execute(t, db, "CREATE TABLE t (id integer PRIMARY KEY)")
	var want [][]string
	for i := -30; i < 60; i++ {
		execute(t, db, "INSERT INTO t VALUES (?)", i)
		if (i+30)%20 == 10 || i == -30 {
			want = append(want, nil)
		}
		want[len(want)-1] = append(want[len(want)-1], fmt.Sprintf(`{"id":%d}`, i))
	}
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t *testing.T, h *streamtest.Host) stream.Source {
			return newSource(t, h, func(o *table.Options) {
				o.SQLite, o.Table, o.Split = path, "t", 20
			})
		},
		Want: want,
	})
}

// TestPartitionsAppear checks that tables and stripes created while the source runs are read.
func TestPartitionsAppear(t *testing.T) {
	t.Parallel()
	db, path := openSQLite(t)
	execute(t, db, "CREATE TABLE log_1 (id integer PRIMARY KEY); "+
		"INSERT INTO log_1 VALUES (1), (99)")
	s := newSource(t, connectortest.NewHost(t), func(o *table.Options) {
		o.SQLite, o.Tables, o.Split, o.Poll = path, []string{"log_*"}, 100, 10*time.Millisecond
	})
	r, err := s.Open(t.Context(), stream.OpenOptions{Resume: func(string) (stream.Mark, bool) {
		return stream.Mark{}, false
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make(map[string][]string)
	read := func(n int) {
		t.Helper()
		for n > 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b := stream.NewBatch(stream.BatchLimits{})
			err := r.Read(ctx, b)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Records {
				id := b.Spans[b.Records[i].Span].Part.ID
				got[id] = append(got[id], string(b.Text(i)))
			}
			n -= len(b.Records)
		}
	}
	read(2)
	execute(t, db, "INSERT INTO log_1 VALUES (100), (205)")
	execute(t, db, "CREATE TABLE other (id integer PRIMARY KEY); "+
		"CREATE TABLE log_2 (id integer PRIMARY KEY); INSERT INTO log_2 VALUES (7)")
	read(3)
	want := "map[log_1#100.0:[{\"id\":1} {\"id\":99}] log_1#100.1:[{\"id\":100}] " +
		"log_1#100.2:[{\"id\":205}] log_2#100.0:[{\"id\":7}]]"
	if fmt.Sprint(got) != want {
		t.Errorf("read %v\nwant %s", got, want)
	}
}

// TestOtherSplit checks that marks of another split of a table are not ignored.
func TestOtherSplit(t *testing.T) {
	db, path := openSQLite(t)
	execute(t, db, "CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)")
	known := func(id string) func(yield func(stream.Mark) bool) {
		return func(yield func(stream.Mark) bool) {
			yield(
				stream.Mark{Part: stream.Partition{ID: id}})
		}
	}
	for _, c := range []struct {
		id    string
		split int64
		ok    bool
	}{
		{"t", 0, true}, {"t~late", 0, true}, {"t#10.0", 0, false}, {"t", 10, false},
		{"t#10.3", 10, true}, {"t#10.3~late", 10, true},
		{"t#100.3", 10, false}, {"u", 10, true}, {"tt#10.0", 0, true},
	} {
		s := newSource(t, connectortest.NewHost(t),
			func(o *table.Options) { o.SQLite, o.Table, o.Split = path, "t", c.split })
		r, err := s.Open(t.Context(), stream.OpenOptions{
			Known: known(c.id), Resume: func(string) (stream.Mark,
				bool) {
				return stream.Mark{}, false
			},
		})
		if (err == nil) != c.ok {
			t.Errorf("mark of %s, split %d: %v", c.id, c.split, err)
		}
		if err == nil {
			r.Close()
		} else if !strings.Contains(err.Error(), "or reset the positions with") {
			t.Error(err)
		}
	}
}

// TestWideRows checks that a batch ends at its byte limit, regardless of the size of earlier rows.
func TestWideRows(t *testing.T) {
	t.Parallel()
	db, path := openSQLite(t)
	execute(t, db, "CREATE TABLE t (id integer PRIMARY KEY, data text)")
	execute(t, db, `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
		INSERT INTO t SELECT i, replace(hex(zeroblob(5 + i / 1000 * 25000)), '00', 'xx') FROM n`)
	s := newSource(t, connectortest.NewHost(t), func(o *table.Options) {
		o.SQLite, o.Table = path, "t"
	})
	r, err := s.Open(t.Context(), stream.OpenOptions{
		Once: true, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows, largest := 0, 0
	for {
		b := stream.NewBatch(stream.BatchLimits{Bytes: 200_000, Records: 5000})
		if err := r.Read(t.Context(), b); err != nil {
			break
		}
		rows += len(b.Records)
		largest = max(largest, len(b.Data))
	}
	if rows != 2000 || largest > 260_000 {
		t.Errorf("%d rows, the largest batch has %d bytes", rows, largest)
	}
}

// FuzzJournal checks that reading a journal with any content returns, without a panic, and that
// the end of the last complete entry is within the content.
func FuzzJournal(f *testing.F) {
	f.Add([]byte("PENSTOCK-SEEN-1\n"))
	f.Add([]byte("PENSTOCK-SEEN-1\n\x02\x00\x00\x00abcdPt"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) { table.ReadJournal(text) })
}

// TestOptions checks that invalid options are refused without opening anything.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		set  func(o *table.Options)
		want string
	}{
		{func(o *table.Options) { o.Table = "t" }, "selects 0 databases"},
		{func(o *table.Options) { o.SQLite, o.MySQL, o.Table = "a", "b", "t" },
			"selects 2 databases"},
		{func(o *table.Options) { o.SQLite = "a" }, "selects 0 inputs"},
		{func(o *table.Options) { o.SQLite, o.Query = "a", "SELECT 1" }, "query: has no order"},
		{func(o *table.Options) { o.SQLite, o.Table, o.Zone = "a", "t", "CET" }, `zone: is "CET"`},
		{func(o *table.Options) { o.SQLite, o.Table, o.Notify = "a", "t", "c" },
			"notify: needs PostgreSQL"},
		{func(o *table.Options) {
			o.SQLite, o.Table, o.OrderBy = "a", "t", []string{"a", "a"}
		}, `order_by[1]: "a" is given twice`},
		{func(o *table.Options) {
			o.SQLite, o.Tables = "a", []string{"["}
		}, `tables[0]: "[" is neither a name nor a glob`},
		{func(o *table.Options) { o.Postgres, o.Table = "http://x", "t" }, "postgres: it is not a URL of PostgreSQL"},
		{func(o *table.Options) {
			o.SQLite, o.Table, o.Rescan = "a", "t", 1<<30
		}, "rescan: is 1073741824, want 0 to 1000000"},
		{func(o *table.Options) { o.SQLite, o.Table, o.Connections = "a", "t", 0 }, "connections: is 0, want 1 to 64"},
		{func(o *table.Options) {
			o.SQLite, o.Table, o.Connections = "a", "t", 65
		}, "connections: is 65, want 1 to 64"},
		{func(o *table.Options) { o.SQLite, o.Table, o.Split = "a", "t", -1 }, "split: is -1, want more than 0"},
	} {
		o := table.DefaultOptions()
		c.set(o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want ... %s", err, c.want)
		}
	}
	if _, err := table.New(*table.DefaultOptions(), connectortest.NewHost(t)); err == nil {
		t.Error("a source that names nothing was made")
	}
	missing := filepath.Join(t.TempDir(), "no.db")
	s := newSource(t, connectortest.NewHost(t),
		func(o *table.Options) { o.SQLite, o.Table = missing, "t" })
	_, err := s.Open(t.Context(), stream.OpenOptions{})
	if err == nil || !strings.Contains(err.Error(), "the file does not exist; correct `sqlite`") {
		t.Errorf("Open: %v", err)
	}
}
