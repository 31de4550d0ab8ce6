package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/mysql"
	"github.com/penstock-io/penstock/stream"
)

// opened opens a sink and returns its lanes.
func opened(t *testing.T, o mysql.Options) []stream.Lane {
	t.Helper()
	s, err := mysql.New(o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	var lanes []stream.Lane
	err = s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "main", Lanes: func(l []stream.Lane) {
		lanes = l
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lanes
}

func deliver(lane stream.Lane, b *stream.Batch) error {
	_, err := lane.Worker.Deliver(context.Background(), stream.Attempt{Value: b, ID: 1, Number: 1})
	return err
}

// refused checks that rows refused by the database are rejected, and that errors of the table are
// not.
func refused(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	d.exec(t, "CREATE TABLE t (id int NOT NULL PRIMARY KEY, small tinyint, note varchar(5), at "+
		"datetime, c int CHECK (c > 0))")
	lane := opened(t, d.options("t"))[0]
	for _, c := range []struct{ record, want string }{
		{`{"id":1,"note":"too long for it"}`, "Data too long"},
		{`{"id":1,"small":1000}`, "Out of range"},
		{`{"id":1,"at":"no time"}`, "Incorrect datetime"},
		{`{"id":1,"c":-1}`, "CONSTRAINT"},
		{`{"note":"x"}`, "cannot be null"},
	} {
		err := deliver(lane, connectortest.Records(t, c.record))
		r, ok := errors.AsType[*stream.Rejected](err)
		if !ok || !strings.Contains(r.Err.Error(), c.want) {
			t.Errorf("%s: %v, want it rejected: %s", c.record, err, c.want)
		}
	}
	if err := deliver(lane, connectortest.Records(t, `{"id":7,"note":"good"}`)); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "ALTER TABLE t DROP COLUMN note")
	other := connectortest.Records(t, `{"id":8,"note":"good"}`)
	other.Spans[0].From.Num, other.Spans[0].To.Num = other.Spans[0].To.Num, 2*other.Spans[0].To.Num
	if _, ok := errors.AsType[*stream.Misconfigured](deliver(lane, other)); !ok {
		t.Error("a lost column is not the table's fault")
	}
	if got := d.column(t, "SELECT id FROM t"); !slices.Equal(got, []string{"7"}) {
		t.Errorf("the table holds %v", got)
	}
}

// vanishes drops the data's table while all lanes are in a transaction. It checks that each batch
// is retried and the table is recreated. If the ledger's tables are dropped, each lane reports an
// error.
func vanishes(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	lanes := opened(t, d.options("t"))
	batch := func(i int) *stream.Batch {
		b := connectortest.Records(t, fmt.Sprintf(`{"id":%d}`, i))
		size := b.Spans[0].To.Num
		b.Spans[0].From.Num, b.Spans[0].To.Num = int64(i)*size, int64(i+1)*size
		return b
	}
	deliverAll := func() chan error {
		answers := make(chan error, len(lanes))
		for i, lane := range lanes {
			go func() { answers <- deliver(lane, batch(i)) }()
		}
		return answers
	}
	if err := deliver(lanes[0], batch(len(lanes))); err != nil { // creates the table
		t.Fatal(err)
	}
	other, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	run := func(query string) {
		t.Helper()
		if _, err := other.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	run("LOCK TABLES penstock_spans WRITE, t WRITE")
	answers := deliverAll()
	const waiting = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() " +
		"AND state LIKE 'Waiting for table%lock'"
	for want := strconv.Itoa(len(lanes)); d.column(t, waiting)[0] != want; {
		if len(answers) > 0 {
			t.Fatalf("a lane did not wait: %v", <-answers)
		}
	}
	run("DROP TABLE t")
	run("UNLOCK TABLES")
	const gone = "the table \"t\" does not exist; it will be created again"
	for range lanes {
		err := <-answers
		if _, ok := errors.AsType[*stream.Misconfigured](err); ok || err == nil ||
			!strings.Contains(err.Error(), gone) {
			t.Errorf("%v, want the batch tried again: %s", err, gone)
		}
	}
	answers = deliverAll()
	for range lanes {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if got := d.column(t, "SELECT id FROM t ORDER BY id"); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("the table holds %v", got) // earlier rows were dropped with the table
	}
	run("DROP TABLE penstock_spans")
	answers = deliverAll()
	for range lanes {
		err := <-answers
		if m, ok := errors.AsType[*stream.Misconfigured](err); !ok ||
			!strings.Contains(m.Error(), "penstock_spans") {
			t.Errorf("%v, want misconfigured: the ledger's table is gone", err)
		}
	}
}

// upsert checks that the last record of a key wins.
func upsert(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	o := d.options("t")
	o.Mode, o.Key = "upsert", []string{"id"}
	lane := opened(t, o)[0]
	b := connectortest.Records(t, `{"id":"a","v":1}`, `{"id":"b","v":2}`, `{"id":"a","v":3}`,
		`{"id":"A","v":4}`)
	if err := deliver(lane, b); err != nil {
		t.Fatal(err)
	}
	want := []string{"A 4", "a 3", "b 2"}
	if got := d.column(t, "SELECT concat(id, ' ', v) FROM t ORDER BY id"); !slices.Equal(got, want) {
		t.Errorf("the table holds %v, want %v", got, want)
	}
}

// audit checks that differences between the table and the records are found.
func audit(t *testing.T, server *connectortest.Server) {
	for _, mode := range []string{"append", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			d := fresh(t, server)
			o := d.options("audited")
			o.Mode = mode
			d.exec(t, "CREATE TABLE audited (id varchar(9), n decimal(65,30), i bigint, "+
				"b boolean, j json, t text CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, _extra json)")
			if mode == "upsert" {
				o.Key = []string{"id"}
				d.exec(t, "CREATE UNIQUE INDEX k ON audited (id)")
			}
			connectortest.Audit(t, connectortest.AuditCase{
				Sink: func(t *testing.T, h stream.Host) stream.Sink {
					s, err := mysql.New(o, h)
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				Upsert: mode == "upsert",
				Exec:   func(t *testing.T, statement string) { d.exec(t, statement) },
			})
		})
	}
}

// values checks that values are read back unchanged.
func values(t *testing.T, server *connectortest.Server) {
	d := fresh(t, server)
	lane := opened(t, d.options("t"))[0]
	b := connectortest.Records(t,
		`{"n":12345678901234567890.5,"t":"it's; `+
			`-- a 'quote' ? % ☃","b":true,"j":{"a":[1,null]},"i":-9223372036854775808}`,
		`{"n":1e29,"t":"","b":false,"j":[],"i":0}`)
	if err := deliver(lane, b); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"SELECT n + 0 FROM t ORDER BY n": {
			"12345678901234567890." + "5" + strings.Repeat("0", 29),
			"1" + strings.Repeat("0", 29) + "." + strings.Repeat("0", 30),
		},
		"SELECT t FROM t ORDER BY n": {"it's; -- a 'quote' ? % ☃", ""},
		"SELECT b FROM t ORDER BY n": {"1", "0"},
		"SELECT j FROM t ORDER BY n": {`{"a":[1,null]}`, "[]"},
		"SELECT i FROM t ORDER BY n": {"-9223372036854775808", "0"},
	} {
		if got := d.column(t, query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

// TestOptions checks that invalid options are refused without opening anything, and that the
// password is never shown.
func TestOptions(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"", "url: missing: the database"},
		{"mysql://root:secret@localhost/test",
			"it is not an address; write tcp(host:3306)/database"},
		{"root:secret@tcp(localhost:3306)/", "it has no database"},
	} {
		o := mysql.DefaultOptions()
		o.URL, o.Table = c.url, "t"
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want ... %s", c.url, err, c.want)
		}
	}
}
