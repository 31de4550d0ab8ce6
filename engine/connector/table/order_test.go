package table_test

import (
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
)

// icuOrder checks that texts are ordered by their bytes in a database with a default collation of
// ICU, regardless of its LC_COLLATE. In that collation, "C" is after "b".
func icuOrder(t *testing.T, server *connectortest.Server) {
	execute(t, openPostgres(t, server.URL), "CREATE DATABASE icu LOCALE_PROVIDER icu "+
		"ICU_LOCALE 'en-US' LC_COLLATE 'C' LC_CTYPE 'C' ENCODING 'UTF8' TEMPLATE template0")
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/icu"
	w := fixture{openPostgres(t, address.String()),
		func(o *table.Options) { o.Postgres = address.String() }}
	execute(t, w.db, "CREATE TABLE t (k text PRIMARY KEY); INSERT INTO t VALUES ('C'), ('b')")
	r, err := w.open(t, true, nil, ofTable("t"))
	if err != nil {
		t.Fatal(err)
	}
	texts, _, err := drain(t, r)
	if err != nil || !slices.Equal(texts, []string{`{"k":"C"}`, `{"k":"b"}`}) {
		t.Errorf("read %v, %v", texts, err)
	}
}

// narrowSplit checks that the bounds of a partition may exceed the type of its column.
func narrowSplit(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (k smallint PRIMARY KEY); "+
		"INSERT INTO t VALUES (-32768), (0), (32767)")
	r, err := w.open(t, true, nil, func(o *table.Options) { o.Table, o.Split = "t", 10_000 })
	if err != nil {
		t.Fatal(err)
	}
	texts, _, err := drain(t, r)
	slices.Sort(texts)
	if err != nil || !slices.Equal(texts, []string{`{"k":-32768}`, `{"k":0}`, `{"k":32767}`}) {
		t.Errorf("read %v, %v", texts, err)
	}
}

// wideSplit checks that partitions are refused if their bounds would exceed 64 bits.
func wideSplit(t *testing.T, w fixture, values string, want string) {
	execute(t, w.db, "CREATE TABLE wide (k "+values)
	r, err := w.open(t, true, nil, func(o *table.Options) {
		o.Table, o.Split = "wide", math.MaxInt64/2
	})
	if err == nil {
		_, _, err = drain(t, r)
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ... %s", err, want)
	}
}

func TestWideSplit(t *testing.T) {
	t.Parallel()
	wideSplit(t, sqliteFixture(t),
		"INTEGER PRIMARY KEY); INSERT INTO wide VALUES (0), (9223372036854775807)",
		"`split` needs values that are at least")
}

// TestOrderOfView checks that the route stops if a query does not return its rows in byte order. A
// row that comes later in the query's order, but is before the position in byte order, would
// otherwise never be read.
func TestOrderOfView(t *testing.T) {
	t.Parallel()
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (k TEXT COLLATE NOCASE); INSERT INTO t VALUES ('b')")
	r, err := w.open(t, false, nil, ofQuery("SELECT k FROM t", "k"))
	if err != nil {
		t.Fatal(err)
	}
	texts, _, err := next(t, r)
	if err != nil || !slices.Equal(texts, []string{`{"k":"b"}`}) {
		t.Fatalf("read %v, %v", texts, err)
	}
	execute(t, w.db, "INSERT INTO t VALUES ('C')")
	texts, _, err = next(t, r)
	if err == nil || !strings.Contains(err.Error(), "in another order") {
		t.Errorf("read %v, %v; want another order", texts, err)
	}
}

// TestColumnCollation checks that texts are ordered by their bytes, regardless of the collation of
// their column. The column may have no index, or an index with another collation.
func TestColumnCollation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		make  string
		order []string
	}{
		{"CREATE TABLE t (k TEXT COLLATE NOCASE NOT NULL, id INTEGER PRIMARY KEY)",
			[]string{"k", "id"}},
		{"CREATE TABLE t (k TEXT COLLATE NOCASE NOT NULL, id INTEGER); " +
			"CREATE UNIQUE INDEX u ON t (k COLLATE BINARY)", []string{"k"}},
	} {
		w := sqliteFixture(t)
		execute(t, w.db, c.make)
		execute(t, w.db, "INSERT INTO t VALUES ('b', 1), ('C', 2), ('a', 3)")
		r, err := w.open(t, true, nil, ofTable("t", c.order...))
		if err != nil {
			t.Fatal(err)
		}
		texts, _, err := drain(t, r)
		want := []string{`{"k":"C","id":2}`, `{"k":"a","id":3}`, `{"k":"b","id":1}`}
		if err != nil || !slices.Equal(texts, want) {
			t.Errorf("%s: read %v, %v", c.make, texts, err)
		}
	}
}

// TestPartitionIDOfLongName checks that the id of a partition has at most 200 bytes, as ledgers
// demand, and that long names with a common prefix have different ids.
func TestPartitionIDOfLongName(t *testing.T) {
	t.Parallel()
	w := sqliteFixture(t)
	long := strings.Repeat("ж", 64)
	ids := make(map[string]bool)
	for _, name := range []string{long + "1", long + "2"} {
		execute(t, w.db, `CREATE TABLE "`+name+`" (k INTEGER PRIMARY KEY)`)
		execute(t, w.db, `INSERT INTO "`+name+`" VALUES (-1000000000)`)
		r, err := w.open(t, true, nil, func(o *table.Options) {
			o.Table, o.Split = name, 100_000_000
		})
		if err != nil {
			t.Fatal(err)
		}
		_, spans, err := next(t, r)
		if err != nil || len(spans) == 0 {
			t.Fatal(spans, err)
		}
		id := spans[0].Part.ID
		if len(id) > 200-len("~late") || ids[id] {
			t.Errorf("the id has %d bytes: %s", len(id), id)
		}
		ids[id] = true
	}
}

// bytesAndTexts checks that binary values of MySQL, such as points, arrive as bytes, and texts as
// UTF-8, whatever character set the address names.
func bytesAndTexts(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (k int PRIMARY KEY, g point, t text CHARACTER SET utf8mb4); "+
		"INSERT INTO t VALUES (1, point(1, -2), 'é☃')")
	r, err := w.open(t, true, nil, func(o *table.Options) {
		o.Table = "t"
		before, after, _ := strings.Cut(o.MySQL, "?")
		o.MySQL = before + "?charset=latin1&" + after
	})
	if err != nil {
		t.Fatal(err)
	}
	texts, _, err := drain(t, r)
	want := `{"k":1,"g":"\\x000000000101000000000000000000f03f00000000000000c0","t":"é☃"}`
	if err != nil || !slices.Equal(texts, []string{want}) {
		t.Errorf("read %v, %v; want %s", texts, err, want)
	}
}

// decimals checks the types that a sink gets for DECIMAL and unsigned BIGINT columns. No value may
// exceed its type. The zeros before the number in a ZEROFILL column are not part of the JSON number.
func decimals(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (k int PRIMARY KEY, a decimal(5,2), b decimal(5,2) unsigned, "+
		"c decimal(5,5) unsigned, d decimal(65,0), e decimal(6,2) zerofill, f bigint unsigned); "+
		"INSERT INTO t VALUES (1, 1, 1, 0, 1, 1, 18446744073709551615)")
	for _, c := range []struct {
		set  func(o *table.Options)
		want string
	}{
		{ofTable("t"), "numeric(5,2) numeric(5,2) numeric(5,5) numeric(65,0) numeric(6,2) numeric(20,0)"},
		// the driver does not report whether the columns of a query are unsigned
		{ofQuery("SELECT * FROM t", "k"),
			"numeric(6,2) numeric(5,2) numeric(5,5) numeric(65,0) numeric(6,2) numeric(20,0)"},
	} {
		r, err := w.open(t, true, nil, c.set)
		if err != nil {
			t.Fatal(err)
		}
		b := stream.NewBatch(stream.BatchLimits{Records: 3})
		if err := r.Read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(b.Types[1:], " "); got != c.want {
			t.Errorf("types %s, want %s", got, c.want)
		}
		want := `{"k":1,"a":1.00,"b":1.00,"c":0.00000,"d":1,"e":1.00,"f":18446744073709551615}`
		if got := string(b.Text(0)); got != want {
			t.Errorf("read %s, want %s", got, want)
		}
	}
}

// autocommit checks that new rows are found even if the server's autocommit is off. Without
// autocommit, all queries of a session may read the same snapshot.
func autocommit(t *testing.T, w fixture) {
	execute(t, w.db, "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)")
	r, err := w.open(t, false, nil, func(o *table.Options) {
		o.Table, o.Lag, o.Poll = "t", new(time.Millisecond), 10*time.Millisecond
		o.MySQL += "?autocommit=0"
	})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range []string{`{"k":1}`, `{"k":2}`} {
		if k > 0 {
			execute(t, w.db, "INSERT INTO t VALUES (2)")
		}
		texts, _, err := next(t, r)
		if err != nil || !slices.Equal(texts, []string{want}) {
			t.Errorf("read %v, %v; want %s", texts, err, want)
		}
	}
}
