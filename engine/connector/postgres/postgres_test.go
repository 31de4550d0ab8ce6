package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// opened is a sink after Load.
type opened struct {
	*postgres.Sink
	host  *streamtest.Host
	lanes []stream.Lane
	rows  streamtest.Rows
}

func open(t testing.TB, o postgres.Options) *opened {
	t.Helper()
	s := &opened{host: connectortest.NewHost(t)}
	s.Sink = newSink(t, o, s.host)
	t.Cleanup(func() { s.Close() })
	err := s.Open(t.Context(), stream.SinkOptions{
		Pipeline: "p", Route: "main", Once: true, Lanes: func(l []stream.Lane) { s.lanes = l },
	})
	if err == nil {
		_, err = s.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// field is a field of a test row.
type field struct {
	name string
	kind stream.Kind
	text string
}

// batch returns a batch of parsed records.
func (s *opened) batch(rows ...[]field) *stream.Batch {
	for _, row := range rows {
		s.rows.Record()
		for _, f := range row {
			s.rows.Field(f.name, f.kind, f.text)
		}
	}
	return s.rows.Batch()
}

func (s *opened) deliver(t testing.TB, b *stream.Batch) error {
	t.Helper()
	if b.Kept() > 0 {
		if err := b.Encode(s.Sink); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.lanes[0].Worker.Deliver(t.Context(), stream.Attempt{Value: b})
	return err
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	d := fresh(t, server.Get(t))
	s := open(t, d.options("numbers"))
	const seed = 6
	random := rand.New(rand.NewPCG(seed, 0))
	numbers := []string{
		"0", "-0", "0.0", "-0.00", "0.1", "1", "10", "9999", "10000", "10001", "99999999", "0.0001",
		"0.00001", "1.10",
		"9223372036854775808",
		"-9223372036854775809", "1e400", "1E-40", "-1.5e3", "123456789.987654321", "1e0",
		"00012.50",
		"12345678901234567890.12345678901234567890",
	}
	for range 500 {
		n := fmt.Sprint(random.IntN(3))
		for range random.IntN(30) {
			n += fmt.Sprint(random.IntN(10) * random.IntN(2))
		}
		if random.IntN(2) == 0 {
			n += "."
			for range 1 + random.IntN(20) {
				n += fmt.Sprint(random.IntN(10) * random.IntN(2))
			}
		}
		if random.IntN(3) == 0 {
			n += fmt.Sprintf("e%d", random.IntN(60)-30)
		}
		numbers = append(numbers, []string{"", "-"}[random.IntN(2)]+n)
	}
	var rows [][]field
	for _, n := range numbers {
		rows = append(rows, []field{{"n", stream.Number, n}, {"text", stream.Text, n}})
	}
	if err := s.deliver(t, s.batch(rows...)); err != nil {
		t.Fatal(err)
	}
	if got := d.column(t,
		`SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'numbers'::regclass
		AND attname = 'n'`); got[0] != "numeric" {
		t.Errorf("numbers became %v", got)
	}
	wrong := d.column(t, `SELECT text || ' is stored as ' || n::text FROM numbers WHERE n::text `+
		`<> text::numeric::text`)
	if len(wrong) > 0 {
		t.Errorf("seed %d: %d of %d differ from what the server reads: %v", seed, len(wrong),
			len(numbers), wrong[:min(5, len(wrong))])
	}
	if got := d.column(t, `SELECT count(*)::text FROM numbers`); got[0] != fmt.Sprint(len(numbers)) {
		t.Errorf("%s rows of %d", got[0], len(numbers))
	}
}

// TestValuesFindTheirColumn checks values with other types than those of the first batch.
func TestValuesFindTheirColumn(t *testing.T) {
	d := fresh(t, server.Get(t))
	s := open(t, d.options("events"))
	long := strings.Repeat("n", 64)
	first := s.batch([]field{
		{"i", stream.Number, "1"}, {"b", stream.Bool, "true"},
		{"j", stream.JSON, `{"z":1.10,"a":[1]}`},
		{"t", stream.Text, "a\tb\\N"},
		{"null", stream.Null, ""}, {`q"uo'te`, stream.Text, "x"}, {long, stream.Number, "7"},
		{"ctid", stream.Text, "c"},
	})
	second := s.batch([]field{
		{"i", stream.Number, "9223372036854775808"}, {"b", stream.Text, "maybe"},
		{"j", stream.Text, `say "x"`},
		{"t", stream.Number, "0.10"},
		{"null", stream.JSON, "[1]"}, {"new", stream.Number, "1.50"},
		{"new", stream.Text, "bad \xff byte"},
	}, []field{{"i", stream.Text, "12"}, {"t", stream.Text, "\xc3\x28"}})
	for _, b := range []*stream.Batch{first, second} {
		if err := s.deliver(t, b); err != nil {
			t.Fatal(err)
		}
	}
	got := d.column(t, `SELECT row_to_json(e)::text FROM events e`)
	want := []string{
		`{"i":1,"b":true,"j":{"z":1.10,"a":[1]},"t":"a\tb\\N","null":null,"q\"uo'te":"x","_extra":{"` + long + `":7,"ctid":"c"}}`,
		`{"i":null,"b":null,"j":"say \"x\"","t":"0.10","null":"[1]","q\"uo'te":null,` +
			`"_extra":{"i":9223372036854775808,"b":"maybe","new":1.50,"new":"bad ` + "\uFFFD" +
			` byte"}}`,
		`{"i":12,"b":null,"j":null,"t":"` + "\uFFFD" +
			`(","null":null,"q\"uo'te":null,"_extra":null}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// settle delivers b like the engine, which bisects rejected batches. It adds the reason for each
// refused record to the map refused, with the record's message as the key.
func (s *opened) settle(t testing.TB, b *stream.Batch, refused map[string]string) {
	t.Helper()
	err := s.deliver(t, b)
	if split, ok := errors.AsType[*stream.Split](err); ok {
		for _, it := range split.Refused {
			note(it.Value, split.Err, refused)
			if err := s.Store(t.Context(), it.Value.Spans); err != nil {
				t.Fatal(err)
			}
		}
		for _, it := range split.Rest {
			s.settle(t, it.Value, refused)
		}
		return
	}
	if rejected, ok := errors.AsType[*stream.Rejected](err); ok {
		m := b.Middle()
		if m == 0 {
			note(b, rejected.Err, refused)
			if err := s.Store(t.Context(), b.Spans); err != nil {
				t.Fatal(err)
			}
			return
		}
		s.settle(t, b.Cut(0, m), refused)
		s.settle(t, b.Cut(m, len(b.Records)), refused)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
}

func note(b *stream.Batch, reason error, refused map[string]string) {
	for i := range b.Records {
		if b.Records[i].State == stream.Kept {
			refused[string(b.Value(b.Fields[b.Records[i].Field]))] = reason.Error()
		}
	}
}

// TestRefusedRows checks that rows refused by the database or the table are isolated, that the
// others are written once, and that the ledger has all of them as settled.
func TestRefusedRows(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, `CREATE TABLE orders (id text PRIMARY KEY, n bigint CHECK (n < 90), day `+
		`date, at serial)`)
	o := d.options("orders")
	o.OnNewField = "dead_letter"
	s := open(t, o)
	var rows [][]field
	for i := range 100 {
		row := []field{{"id", stream.Text, fmt.Sprint(i)}, {"n", stream.Number, fmt.Sprint(i)},
			{"day", stream.Text, "2026-11-21"}}
		switch i {
		case 7:
			row[1].text = "1.5"
		case 20:
			row[2].text = "no day"
		case 33:
			row = append(row, field{"more", stream.Text, "x"})
		case 40:
			row[0].text = "a\x00b"
		case 41:
			row[0].text = "0" // the same key again
		}
		rows = append(rows, row)
	}
	refused := map[string]string{}
	s.settle(t, s.batch(rows...), refused)
	for id, want := range map[string]string{
		"7": "whole numbers", "20": "22007", "33": `"more" has no column`, "a\x00b": "NUL",
		"0": "orders_pkey", "95": "orders_n_check",
	} {
		if !strings.Contains(refused[id], want) {
			t.Errorf("record %q was refused for %q, want %q", id, refused[id], want)
		}
	}
	if len(refused) != 15 {
		t.Errorf("refused %v", refused)
	}
	if got := d.column(t, `SELECT count(*) || ' ' || count(at) FROM orders`); got[0] != "85 85" {
		t.Errorf("the table has %v, want 85", got)
	}
	marks, err := s.Load(t.Context())
	if err != nil || len(marks) != 1 || marks[0].Watermark.Num != 100 || len(marks[0].Above) > 0 {
		t.Errorf("the ledger has %v, %v", marks, err)
	}
}

// TestNotFinite checks that numbers that JSON cannot represent are stored in columns that can store
// them. The source table hands them out as texts.
func TestNotFinite(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, `CREATE TABLE limits (f double precision, n numeric, i bigint, _extra json)`)
	s := open(t, d.options("limits"))
	var rows [][]field
	for _, text := range []string{"NaN", "Infinity", "-Infinity", "nan"} {
		rows = append(rows, []field{{"f", stream.Text, text}, {"n", stream.Text, text},
			{"i", stream.Text, text}})
	}
	if err := s.deliver(t, s.batch(rows...)); err != nil {
		t.Fatal(err)
	}
	got := d.column(t, `SELECT concat_ws(' ', f, n, _extra) FROM limits`)
	want := []string{`NaN NaN {"i":"NaN"}`, `Infinity {"n":"Infinity","i":"Infinity"}`,
		`-Infinity {"n":"-Infinity","i":"-Infinity"}`, `{"f":"nan","n":"nan","i":"nan"}`}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}

// TestUpsertNumberedKey checks an upsert into a table with a bigserial key. The rows must have the
// keys of the records, and not numbers that the database generates.
func TestUpsertNumberedKey(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, `CREATE TABLE numbered (id bigserial PRIMARY KEY, v bigint)`)
	o := d.options("numbered")
	o.Mode, o.Key = "upsert", []string{"id"}
	s := open(t, o)
	row := func(id, v string) []field {
		return []field{{"id", stream.Number, id}, {"v", stream.Number, v}}
	}
	if err := s.deliver(t, s.batch(row("7", "1"), row("8", "2"), row("7", "3"))); err != nil {
		t.Fatal(err)
	}
	got := d.column(t, `SELECT id || ' ' || v FROM numbered ORDER BY id`)
	if !slices.Equal(got, []string{"7 3", "8 2"}) {
		t.Errorf("the table has %v", got)
	}
}

func TestUpsert(t *testing.T) {
	d := fresh(t, server.Get(t))
	o := d.options("state")
	o.Mode, o.Key = "upsert", []string{"id"}
	s := open(t, o)
	if len(s.lanes) != 1 || !s.lanes[0].Limits.Ordered {
		t.Errorf("upsert has %d lanes, ordered: %v; want one that keeps the order", len(s.lanes),
			s.lanes[0].Limits.Ordered)
	}
	row := func(id, v string) []field { return []field{{"id", stream.Text, id}, {"v", stream.Number, v}} }
	refused := map[string]string{}
	s.settle(t, s.batch(row("a", "1"), row("b", "1"), row("a", "2")), refused)
	s.settle(t, s.batch(row("b", "3"), []field{{"v", stream.Number, "4"}}, row("c", "1")), refused)
	if got := d.column(t, `SELECT id || v FROM state ORDER BY id`); !slices.Equal(got, []string{"a2", "b3", "c1"}) {
		t.Errorf("the table has %v", got)
	}
	if len(refused) != 1 || !strings.Contains(refused["4"], `key's column "id" has no value`) {
		t.Errorf("refused: %v", refused)
	}
}

// TestMisconfigured checks that errors of the table or of permissions neither settle nor reject
// records.
func TestMisconfigured(t *testing.T) {
	server := server.Get(t)
	d := fresh(t, server)
	d.exec(t, `CREATE TABLE narrow (a text)`)
	d.exec(t, `CREATE TABLE closed (a text, _extra json)`)
	d.exec(t, `CREATE TABLE filled (a text, b serial)`)
	d.exec(t, `CREATE TABLE later (a text UNIQUE DEFERRABLE, b text)`)
	long, deferrable := d.options("long"), d.options("later")
	long.Columns = []sqltable.ColumnOption{{Name: "a", Type: "varchar(999999999)"}}
	deferrable.Mode, deferrable.Key = "upsert", []string{"a"}
	d.exec(t, `CREATE ROLE weak LOGIN`)
	defer func() {
		d.exec(t, `DROP OWNED BY weak`)
		d.exec(t, `DROP ROLE weak`)
	}()
	open(t, d.options("narrow")).Close() // creates the tables of the ledger
	d.exec(t, `GRANT USAGE, CREATE ON SCHEMA `+d.schema+` TO weak`)
	d.exec(t, `GRANT ALL ON ALL TABLES IN SCHEMA `+d.schema+` TO weak`)
	d.exec(t, `REVOKE ALL ON closed FROM weak`)
	rightless := d.options("closed")
	rightless.URL, rightless.Ledger = strings.Replace(d.url, "postgres@", "weak@", 1), "weak"
	for _, c := range []struct {
		name  string
		o     postgres.Options
		table string
		want  string
	}{
		{"no JSON column", d.options("narrow"), "", `no column "_extra"`},
		{"no right", rightless, "", "permission denied"},
		{"column with a default", d.options("filled"), "",
			`column "b" has a default value, so it is filled only if`},
		{"type that cannot be created", long, "", "length for type varchar"},
		{"deferrable key", deferrable, "", "deferrable"},
	} {
		s := open(t, c.o)
		err := s.deliver(t, s.batch([]field{{"a", stream.Text, "1"}, {"b", stream.Text, "2"}}))
		if m, ok := errors.AsType[*stream.Misconfigured](err); !ok ||
			!strings.Contains(m.Error(), c.want) {
			t.Errorf("%s: %v, want misconfigured: %s", c.name, err, c.want)
		}
	}
	s := open(t, d.options("narrow"))
	err := s.deliver(t, s.batch([]field{{"a", stream.Text, "a\x00b"}}))
	if _, ok := errors.AsType[*stream.Rejected](err); !ok {
		t.Errorf("a NUL byte, which no column can store: %v, want a refused record", err)
	}
	s = open(t, d.options("changes"))
	if err := s.deliver(t, s.batch([]field{{"n", stream.Number, "1"}})); err != nil {
		t.Fatal(err)
	}
	d.exec(t, `ALTER TABLE changes ALTER n TYPE text`)
	err = s.deliver(t, s.batch([]field{{"n", stream.Number, "2"}}))
	if _, ok := errors.AsType[*stream.Misconfigured](err); !ok {
		t.Errorf("a column of another type: %v, want misconfigured", err)
	}
	o := d.options("x")
	o.URL = strings.Replace(d.url, "/postgres?", "/nowhere?", 1)
	gone := newSink(t, o, connectortest.NewHost(t))
	if err := gone.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "r",
		Lanes: func([]stream.Lane) {}}); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Load(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a database that does not exist: %v", err)
	}
}
