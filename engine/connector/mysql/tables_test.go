package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/mysql"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// loadError returns the error of Load.
func loadError(t *testing.T, o mysql.Options) error {
	t.Helper()
	s, err := mysql.New(o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "main", Once: true,
		Lanes: func([]stream.Lane) {}}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Load(t.Context())
	return err
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ... %s", err, want)
	}
}

// next moves the span of b behind the first n batches of the same size.
func next(b *stream.Batch, n int64) *stream.Batch {
	size := b.Spans[0].To.Num
	b.Spans[0].From.Num, b.Spans[0].To.Num = 1000*n, 1000*n+size
	for i := range b.Records {
		b.Records[i].Origin.Num += 1000 * n
	}
	return b
}

// existing checks that the sink refuses an existing table in two cases: a repeated batch would add
// its rows twice, or an upsert would not replace a row.
func existing(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE plain (id int) ENGINE = MyISAM")
	wantError(t, loadError(t, d.options("plain")), "has the storage engine MyISAM")
	o := d.options("t")
	o.Mode, o.Key = "upsert", []string{"id"}
	d.exec(t, "CREATE TABLE t (id varchar(20), mail varchar(20), n int)")
	d.exec(t, "CREATE INDEX a ON t (id)")
	d.exec(t, "CREATE UNIQUE INDEX b ON t (id, mail)")
	d.exec(t, "CREATE UNIQUE INDEX c ON t (id(5))")
	const want = `has no unique index over the columns of ` + "`key`" + ` ("id")`
	wantError(t, loadError(t, o), want)
	d.exec(t, "DROP INDEX b ON t")
	d.exec(t, "DROP INDEX c ON t")
	d.exec(t, "CREATE UNIQUE INDEX d ON t (id)")
	if err := loadError(t, o); err != nil {
		t.Error(err)
	}
	d.exec(t, "CREATE UNIQUE INDEX e ON t (mail)")
	wantError(t, loadError(t, o), "declare the key NOT NULL")
	d.exec(t, "DROP INDEX e ON t")
	d.exec(t, "ALTER TABLE t ADD COLUMN num int AUTO_INCREMENT PRIMARY KEY")
	if err := loadError(t, o); err != nil {
		t.Error(err)
	}
	o.Key = []string{"num"} // filled, although the server could number it
	if err := loadError(t, o); err != nil {
		t.Error(err)
	}
}

// otherIndex checks that an upsert replaces only the row with the same key. If a new row has the
// values of a row with another key in a second unique index, it must be rejected.
func otherIndex(t *testing.T, server *connectortest.Server) {
	for decl, ids := range map[string][3]string{
		"int":                   {"1", "2", "3"},
		"bigint AUTO_INCREMENT": {"1", "2", "9223372036854775807"},
		"varchar(20)":           {"x", "y", "é"},
		"varbinary(20)":         {"x", "y", "z"},
		"timestamp(6) NOT NULL": {"2026-01-02 03:04:05.678901", "2026-01-03 00:00:00.000000",
			"2026-01-04 00:00:00"},
		"uuid": {"00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002",
			"00000000-0000-0000-0000-000000000003"},
		"inet6":          {"::1", "::2", "::3"},
		"decimal(65,20)": {"1.00000000000000000001", "2.00000000000000000000", "3"},
		"double":         {"1.5", "2.5", "3.5"},
		"datetime(6) DEFAULT now(6)": {"2026-01-02 03:04:05.678901", "2026-01-03 00:00:00.000000",
			"2026-01-04 00:00:00"},
	} {
		d := fresh(t, server)
		d.exec(t, "CREATE TABLE t (id "+decl+" PRIMARY KEY, mail varchar(20) UNIQUE, n int)")
		o := d.options("t")
		o.Mode, o.Key, o.OnNewField = "upsert", []string{"id"}, "ignore"
		o.Columns = []sqltable.ColumnOption{{Name: "id"}, {Name: "mail"}, {Name: "n"}}
		lane := opened(t, o)[0]
		record := func(id, mail string, n int) string {
			return fmt.Sprintf(`{"id":%q,"mail":%q,"n":%d}`, id, mail, n)
		}
		if err := deliver(lane, connectortest.Records(t, record(ids[0], "a", 1),
			record(ids[1], "b", 2))); err != nil {
			t.Fatalf("%s: %v", decl, err)
		}
		err := deliver(lane, next(connectortest.Records(t, record(ids[2], "a", 3)), 1))
		if _, ok := errors.AsType[*stream.Rejected](err); !ok {
			t.Errorf("%s: %v, want the record rejected", decl, err)
		}
		err = deliver(lane, next(connectortest.Records(t, record(ids[1], "c", 4)), 2))
		if err != nil {
			t.Errorf("%s: %v", decl, err)
		}
		got := d.column(t, "SELECT concat_ws(' ', id, mail, n) FROM t ORDER BY id")
		if !slices.Equal(got, []string{ids[0] + " a 1", ids[1] + " c 4"}) {
			t.Errorf("%s: the table has %v", decl, got)
		}
	}
}

// exact checks that numbers keep their digits, and that texts are stored as UTF-8, even if the URL
// of the sink has another character set.
func exact(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (n decimal(65,30), f double, t text CHARACTER SET utf8mb4)")
	o := d.options("t")
	o.URL += "?charset=latin1"
	lane := opened(t, o)[0]
	large := "1" + strings.Repeat("0", 80)
	if err := deliver(lane, connectortest.Records(t,
		`{"n":1.234567890123456789012345e5,"f":`+large+`,"t":"é☃😀"}`)); err != nil {
		t.Fatal(err)
	}
	got := d.column(t, "SELECT concat_ws(' ', n + 0, f, t) FROM t")
	want := []string{"123456.789012345678901234500000000000 1e80 é☃😀"}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}

// restarted checks that a column of JSON takes the same values after a restart.
func restarted(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	for i, record := range []string{`{"j":[1]}`, `{"j":"text"}`, `{"j":"12"}`} {
		lane := opened(t, d.options("t"))[0]
		if err := deliver(lane, next(connectortest.Records(t, record), int64(i))); err != nil {
			t.Fatal(err)
		}
	}
	got := d.column(t, "SELECT j FROM t ORDER BY j")
	if !slices.Equal(got, []string{`"12"`, `"text"`, `[1]`}) {
		t.Errorf("the table has %v", got)
	}
}

// times checks that a column of times can be NULL in a created table. Some servers replace NULL by
// the current time in columns that are not declared as NULL.
func times(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "SET GLOBAL explicit_defaults_for_timestamp = 0")
	defer d.exec(t, "SET GLOBAL explicit_defaults_for_timestamp = 1")
	o := d.options("t")
	o.Columns = []sqltable.ColumnOption{
		{Name: "at", Type: "timestamp"}, {Name: "n", Type: "integer"},
	}
	if err := deliver(opened(t, o)[0], connectortest.Records(t, `{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	got := d.column(t, "SELECT coalesce(at, 'none') FROM t")
	if !slices.Equal(got, []string{"none"}) {
		t.Errorf("the table has %v", got)
	}
}

// names checks a record with fields that cannot be columns: their names are not allowed, or the
// table would have too many columns. These fields must be in the JSON column _extra.
func names(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	lane := opened(t, d.options("t"))[0]
	record := `{"😀":1,"end ":2,"_EXTRA":3,"a":4`
	for i := range 400 {
		record += fmt.Sprintf(`,"text%d":"%s"`, i, strings.Repeat("x", 60))
	}
	if err := deliver(lane, connectortest.Records(t, record+"}")); err != nil {
		t.Fatal(err)
	}
	got := d.column(t, "SELECT concat_ws(' ', a, char_length(text0), json_value(_extra, '$.😀'), "+
		"json_value(_extra, '$.\"end \"'), json_value(_extra, '$._EXTRA'), "+
		"char_length(json_value(_extra, '$.text399'))) FROM t")
	if !slices.Equal(got, []string{"4 60 1 2 3 60"}) {
		t.Errorf("the table has %v", got)
	}
}

// keys checks that created tables compare keys by their bytes.
func keys(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	o := d.options("t")
	o.Mode, o.Key = "upsert", []string{"id"}
	lane := opened(t, o)[0]
	err := deliver(lane, connectortest.Records(t, `{"id":"a","ID":1}`, `{"id":"a ","ID":2}`,
		`{"id":"A"}`))
	if err != nil {
		t.Fatal(err)
	}
	got := d.column(t, "SELECT concat(hex(id), ' ', coalesce(json_value(_extra, '$.ID'), '')) "+
		"FROM t ORDER BY id")
	if !slices.Equal(got, []string{"41 ", "61 1", "6120 2"}) {
		t.Errorf("the table has %q", got)
	}
}

// truthValues checks that a column of type boolean stores whole numbers from -128 to 127, not only
// 0 and 1. This is necessary because the source table reads the values of such columns as numbers.
func truthValues(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (b boolean, _extra json)")
	lane := opened(t, d.options("t"))[0]
	err := deliver(lane, connectortest.Records(t, `{"b":1}`, `{"b":0}`, `{"b":true}`,
		`{"b":-128}`, `{"b":128}`, `{"b":"5"}`, `{"b":1.0}`))
	if err != nil {
		t.Fatal(err)
	}
	got := d.column(t, "SELECT concat_ws(' ', b, _extra) FROM t")
	want := []string{"1", "0", "1", "-128", `{"b":128}`, "5", `{"b":1.0}`}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}

// bits checks that a BIT column gets the values of numbers, not the codes of their digits.
func bits(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (b bit(8), _extra json)")
	o := d.options("t")
	err := deliver(opened(t, o)[0], connectortest.Records(t, `{"b":5}`, `{"b":"6"}`, `{"b":true}`,
		`{"b":false}`, `{"b":null}`, `{"b":-1}`, `{"b":1.0}`, `{"b":"a"}`, `{"b":""}`))
	if err != nil {
		t.Fatal(err)
	}
	got := d.column(t, "SELECT concat_ws(' ', b + 0, _extra) FROM t")
	want := []string{"5", "6", "1", "0", "", `{"b":-1}`, `{"b":1.0}`, `{"b":"a"}`, `{"b":""}`}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}

// points checks that a spatial value is stored as source table reads it.
func points(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (g point, _extra json)")
	var rows streamtest.Rows
	rows.Record()
	rows.Field("g", stream.Text, `\x000000000101000000000000000000f03f00000000000000c0`)
	if err := deliver(opened(t, d.options("t"))[0], rows.Batch()); err != nil {
		t.Fatal(err)
	}
	if got := d.column(t, "SELECT st_astext(g) FROM t"); !slices.Equal(got, []string{"POINT(1 -2)"}) {
		t.Errorf("the table has %v", got)
	}
}

// definitions checks that a lane is misconfigured if the server refuses the definition of the
// table, or if the table is an invalid view. Rows that a view refuses are rejected.
func definitions(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	o := d.options("wide")
	o.Columns = []sqltable.ColumnOption{{Name: "n", Type: "decimal(70,30)"}}
	misconfigured := func(err error, want string) {
		t.Helper()
		m, ok := errors.AsType[*stream.Misconfigured](err)
		if !ok || !strings.Contains(m.Error(), want) {
			t.Errorf("%v, want misconfigured: %s", err, want)
		}
	}
	misconfigured(deliver(opened(t, o)[0], connectortest.Records(t, `{"n":1}`)), "Too big precision")
	d.exec(t, "CREATE TABLE base (n int)")
	d.exec(t, "CREATE VIEW t AS SELECT n FROM base WHERE n < 10 WITH CHECK OPTION")
	lane := opened(t, d.options("t"))[0]
	err := deliver(lane, connectortest.Records(t, `{"n":10}`))
	if _, ok := errors.AsType[*stream.Rejected](err); !ok {
		t.Errorf("%v, want the row rejected", err)
	}
	d.exec(t, "DROP TABLE base")
	misconfigured(deliver(lane, connectortest.Records(t, `{"n":1}`)), "View")
}

// wholeRecord checks that an upsert replaces all columns of a row. This includes the key, if the
// collation treats the old and the new key (a and A) as equal. The key 0 must stay 0, although
// AUTO_INCREMENT normally replaces 0 by the next number.
func wholeRecord(t *testing.T, server *connectortest.Server) {
	for _, c := range []struct{ table, records, want string }{
		{"id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int",
			`{"id":"a","v":1} {"id":"B","v":2} {"id":"A","v":3}`, "A 3,B 2"},
		{"id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int UNIQUE",
			`{"id":"a","v":1} {"id":"B","v":2} {"id":"A","v":3}`, "A 3,B 2"},
		{"id int AUTO_INCREMENT PRIMARY KEY, v int", `{"id":0,"v":1} {"id":0,"v":2}`, "0 2"},
	} {
		d := fresh(t, server)
		d.exec(t, "CREATE TABLE t ("+c.table+")")
		o := d.options("t")
		o.Mode, o.Key = "upsert", []string{"id"}
		err := deliver(opened(t, o)[0], connectortest.Records(t, strings.Fields(c.records)...))
		got := strings.Join(d.column(t, "SELECT concat(id, ' ', v) FROM t ORDER BY id"), ",")
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %s; want %s", c.table, err, got, c.want)
		}
	}
}

// unfit checks that records that a table cannot store are rejected, and do not stop the others.
func unfit(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (n int, t longtext) PARTITION BY RANGE (n) "+
		"(PARTITION p VALUES LESS THAN (10))")
	o := d.options("t")
	o.OnNewField = "ignore"
	lane := opened(t, o)[0]
	for i, record := range []string{`{"n":11}`, `{"n":1,"t":"` + strings.Repeat("x", 20<<20) + `"}`,
		`{"n":1,"t":"` + strings.Repeat("x", 70<<20) + `"}`} {
		err := deliver(lane, next(connectortest.Records(t, record), 1e6*int64(i)))
		if _, ok := errors.AsType[*stream.Rejected](err); !ok {
			t.Errorf("%.9s (%d bytes): %v, want it rejected", record, len(record), err)
		}
	}
	if err := deliver(lane, next(connectortest.Records(t, `{"n":9}`), 9e6)); err != nil {
		t.Error(err)
	}
}

// keptSession checks that a lane keeps its session after it has refused records without sending
// them.
func keptSession(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (n int)")
	d.exec(t, "CREATE USER keeper")
	d.exec(t, "GRANT ALL ON *.* TO keeper")
	o := d.options("t")
	o.URL = strings.Replace(o.URL, "root@", "keeper@", 1)
	o.Workers, o.OnNewField = 1, "dead_letter"
	lane := opened(t, o)[0]
	sessions := func() []string {
		return d.column(t, "SELECT id FROM information_schema.processlist "+
			"WHERE user = 'keeper' ORDER BY id")
	}
	var before []string
	for i, records := range [][]string{{`{"n":1}`}, {`{"m":2}`}, {`{"m":3}`, `{"n":4}`}, {`{"n":5}`}} {
		err := deliver(lane, next(connectortest.Records(t, records...), 1e6*int64(i)))
		if refused := strings.Contains(records[0], "m"); (err != nil) != refused {
			t.Errorf("%s: %v", records, err)
		}
		if i == 0 {
			before = sessions()
		}
	}
	if after := sessions(); !slices.Equal(after, before) {
		t.Errorf("the sessions are %s, and were %s before the refused records", after, before)
	}
}

// auditSession checks that the server does not end the session of an audit after a minute.
func auditSession(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (n int)")
	s, err := mysql.New(d.options("t"), connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Audit(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "main"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	db := sql.OpenDB(s.Connector())
	defer db.Close()
	if got := connectortest.Column(t, db, "SELECT @@wait_timeout"); got[0] != "86400" {
		t.Errorf("wait_timeout is %s s, want a day", got[0])
	}
}

// readOnly checks that a user needs no right to create tables if they exist. It also checks that a
// lane connects again if the server is read-only: after a failover, the same address may belong to
// another server.
func readOnly(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (n int)")
	opened(t, d.options("t")) // creates the ledger
	d.exec(t, "CREATE USER writer")
	d.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO writer")
	o := d.options("t")
	o.URL = strings.Replace(o.URL, "root@", "writer@", 1)
	o.Workers = 1
	lane := opened(t, o)[0]
	if err := deliver(lane, connectortest.Records(t, `{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "SET GLOBAL read_only = 1")
	defer d.exec(t, "SET GLOBAL read_only = 0")
	sessions := func() []string {
		return d.column(t, "SELECT id FROM information_schema.processlist "+
			"WHERE user = 'writer' ORDER BY id")
	}
	before := sessions()
	if err := deliver(lane, next(connectortest.Records(t, `{"n":2}`), 1)); err == nil {
		t.Error("a read-only server has accepted a batch")
	}
	for slices.Equal(sessions(), before) {
		if err := t.Context().Err(); err != nil {
			t.Fatal("the session to the read-only server is still open")
		}
	}
	d.exec(t, "SET GLOBAL read_only = 0")
	if err := deliver(lane, next(connectortest.Records(t, `{"n":2}`), 1)); err != nil {
		t.Error(err)
	}
}

// idle checks that a batch is delivered at its first attempt if the server has closed the
// connection of its lane meanwhile, as it does with idle connections.
func idle(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE USER quiet")
	d.exec(t, "GRANT ALL ON *.* TO quiet")
	o := d.options("t")
	o.URL = strings.Replace(o.URL, "root@", "quiet@", 1)
	lane := opened(t, o)[0]
	for i := range 2 {
		if err := deliver(lane, next(connectortest.Records(t, `{"n":1}`), int64(i))); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		d.exec(t, "KILL CONNECTION USER quiet")
		for d.column(t, "SELECT count(*) FROM information_schema.processlist WHERE user = 'quiet'")[0] != "0" {
			if err := t.Context().Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
