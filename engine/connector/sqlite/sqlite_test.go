package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/sqlite"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// opened is a sink after Load.
type opened struct {
	*sqlite.Sink
	lane stream.Lane
	run  uint32
	rows streamtest.Rows
}

func open(t testing.TB, o sqlite.Options) *opened {
	t.Helper()
	s := &opened{Sink: newSink(t, o, connectortest.NewHost(t))}
	t.Cleanup(func() { s.Close() })
	err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "main", Lanes: func(l []stream.Lane) {
		s.lane = l[0]
	}})
	if err == nil {
		_, err = s.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

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
	if err := b.Encode(s.Sink); err != nil {
		t.Fatal(err)
	}
	s.run++
	_, err := s.lane.Worker.Deliver(t.Context(), stream.Attempt{Value: b, Run: s.run})
	return err
}

func options(t testing.TB, table string) sqlite.Options {
	o := *sqlite.DefaultOptions()
	o.Path, o.Table = filepath.Join(t.TempDir(), "out.db"), table
	return o
}

// TestValues checks that values are read back unchanged, including values with types that differ
// from the first batch.
func TestValues(t *testing.T) {
	o := options(t, "events")
	s := open(t, o)
	first := s.batch([]field{
		{"i", stream.Number, "1"}, {"n", stream.Number, "0.1"}, {"b", stream.Bool, "true"},
		{"j", stream.JSON, `{"z":1.10,"a":[1]}`},
		{"t", stream.Text, "bad \xff byte, \x00 too"}, {`q"uo'te`, stream.Text, "x"},
		{"I", stream.Text, "folds"},
	})
	numbers := []string{"1.10", "9223372036854775808", "1e400", "-0", "0.30000000000000004", "3",
		"100.5", "123456789012345678901234567890"}
	var rows [][]field
	for _, n := range numbers {
		rows = append(rows, []field{{"n", stream.Number, n}})
	}
	rows = append(rows, []field{
		{"i", stream.Number, "9223372036854775808"}, {"b", stream.Text, "maybe"},
		{"new", stream.Number, "1.50"},
	})
	for _, b := range []*stream.Batch{first, s.batch(rows...)} {
		if err := s.deliver(t, b); err != nil {
			t.Fatal(err)
		}
	}
	got := column(t, o.Path, `SELECT CAST(n AS TEXT) FROM events ORDER BY rowid LIMIT 8 OFFSET 1`)
	if !slices.Equal(got, numbers) {
		t.Errorf("numbers are %q, want %q", got, numbers)
	}
	got = column(t, o.Path, `SELECT typeof(i) || typeof(n) || b || j || hex(t) || "q""uo'te" || `+
		`_extra FROM events WHERE rowid = 1`)
	if want := `integerreal1{"z":1.10,"a":[1]}62616420FF20627974652C200020746F6Fx{"I":"folds"}`; got[0] != want {
		t.Errorf("the first row is %s, want %s", got[0], want)
	}
	got = column(t, o.Path, `SELECT _extra FROM events ORDER BY rowid DESC LIMIT 1`)
	if want := `{"i":9223372036854775808,"b":"maybe","new":1.50}`; got[0] != want {
		t.Errorf("the JSON column is %s, want %s", got[0], want)
	}
	if info, err := os.Stat(o.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want mode 0600", info.Mode(), err)
	}
}

// TestRefusedRows checks that one pass over a batch finds all refused records, with their reasons,
// and that no row of such a batch is stored.
func TestRefusedRows(t *testing.T) {
	o := options(t, "orders")
	o.OnNewField = "dead_letter"
	execute(t, o.Path, `CREATE TABLE orders (id TEXT PRIMARY KEY, n INTEGER CHECK (n < 90), at `+
		`TEXT DEFAULT 'now')`)
	s := open(t, o)
	var rows [][]field
	for i := range 200 {
		id := string(rune('A'+i/26)) + string(rune('a'+i%26))
		row := []field{{"id", stream.Text, id}, {"n", stream.Number, "1"}}
		switch i {
		case 70, 71, 150:
			row[1].text = "95"
		case 72:
			row[0].text = "Aa" // the same key again
		case 100:
			row[1].text = "1.5"
		case 199:
			row = append(row, field{"more", stream.Text, "x"})
		}
		rows = append(rows, row)
	}
	b := s.batch(rows...)
	reasons := map[string]int{}
	for round := 0; ; round++ {
		err := s.deliver(t, b)
		if err == nil {
			break
		}
		split, ok := errors.AsType[*stream.Split](err)
		if !ok || round > 5 {
			t.Fatalf("round %d: %v", round, err)
		}
		if n := column(t, o.Path, `SELECT count(*) FROM orders`); n[0] != "0" {
			t.Fatalf("round %d: %s rows of a batch that was refused in part", round, n[0])
		}
		reasons[split.Err.Error()] += split.Refused[0].Value.Kept()
		b = split.Rest[0].Value
	}
	for want, n := range map[string]int{"CHECK": 3, "UNIQUE": 1, "whole numbers": 1, `"more"`: 1} {
		found := false
		for reason, m := range reasons {
			found = found || strings.Contains(reason, want) && m == n
		}
		if !found {
			t.Errorf("no %d refusals for %s: %v", n, want, reasons)
		}
	}
	if n := column(t, o.Path, `SELECT count(*) || count(at) FROM orders`); n[0] != "194194" {
		t.Errorf("%s rows and defaults, want 194 each", n[0])
	}
}

// TestRefusedRowEndsTransaction checks that no row of a batch is stored if a refused row rolls back
// the transaction. The rows of another batch in this transaction must be stored once.
func TestRefusedRowEndsTransaction(t *testing.T) {
	for name, refuse := range map[string]string{
		"constraint": `CREATE INDEX i ON orders (id)`,
		"trigger": `CREATE TRIGGER r BEFORE INSERT ON orders WHEN new.id = 'again' AND
			EXISTS (SELECT 1 FROM orders WHERE id = 'again') 
			BEGIN SELECT RAISE(ROLLBACK, 'again'); END`,
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "orders")
			o.OnNewField = "ignore"
			unique := ""
			if name == "constraint" {
				unique = " UNIQUE ON CONFLICT ROLLBACK"
			}
			execute(t, o.Path, `CREATE TABLE orders (id TEXT`+unique+`, n INTEGER)`)
			execute(t, o.Path, refuse)
			s := open(t, o)
			row := func(id string) []field { return []field{{"id", stream.Text, id}} }
			rows := [][]field{row("again"), row("again")}
			for i := range 900 {
				rows = append(rows, row(fmt.Sprint(i)))
			}
			first, second := s.batch(row("first")), s.batch(rows...)
			for _, b := range []*stream.Batch{first, second} {
				if err := b.Encode(s.Sink); err != nil {
					t.Fatal(err)
				}
			}
			answers := make(chan error, 1)
			go func() { // waits for the first batch, and is written with it
				_, err := s.lane.Worker.Deliver(t.Context(),
					stream.Attempt{Value: second, Run: 1, Index: 1})
				answers <- err
			}()
			_, err := s.lane.Worker.Deliver(t.Context(), stream.Attempt{Value: first, Run: 1})
			if err != nil {
				t.Error(err)
			}
			err = <-answers
			if _, ok := errors.AsType[*stream.Rejected](err); !ok {
				t.Errorf("%v, want the batch rejected", err)
			}
			got := column(t, o.Path, `SELECT id FROM orders`)
			if !slices.Equal(got, []string{"first"}) {
				t.Errorf("the table has %d rows: %.50q", len(got), got)
			}
		})
	}
}

func TestUpsert(t *testing.T) {
	o := options(t, "state")
	o.Mode, o.Key = "upsert", []string{"id"}
	s := open(t, o)
	row := func(id, v string) []field { return []field{{"id", stream.Text, id}, {"v", stream.Number, v}} }
	for _, b := range []*stream.Batch{
		s.batch(row("a", "1"), row("b", "1"), row("a", "2")), s.batch(row("b", "3"), row("c", "1")),
	} {
		if err := s.deliver(t, b); err != nil {
			t.Fatal(err)
		}
	}
	if got := column(t, o.Path, `SELECT id || v FROM state ORDER BY id`); !slices.Equal(got,
		[]string{"a2", "b3", "c1"}) {
		t.Errorf("the table has %v", got)
	}
}

// TestMisconfigured checks that errors of the table neither settle nor reject records.
func TestMisconfigured(t *testing.T) {
	o := options(t, "narrow")
	execute(t, o.Path, `CREATE TABLE narrow (a TEXT)`)
	s := open(t, o)
	misconfigured := func(err error, want string) {
		t.Helper()
		if m, ok := errors.AsType[*stream.Misconfigured](err); !ok ||
			!strings.Contains(m.Error(), want) {
			t.Errorf("%v, want misconfigured: %s", err, want)
		}
	}
	misconfigured(s.deliver(t, s.batch([]field{{"b", stream.Text, "1"}})), `no column "_extra"`)
	execute(t, o.Path, `DROP TABLE narrow`)
	misconfigured(s.deliver(t, s.batch([]field{{"a", stream.Text, "1"}})), "no such table")
	s.Close()
	o.Columns = o.Columns[:0]
	if err := os.WriteFile(o.Path, []byte(strings.Repeat("this is no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"-wal", "-shm"} {
		os.Remove(o.Path + left)
	}
	broken := newSink(t, o, connectortest.NewHost(t))
	err := broken.Open(t.Context(), stream.SinkOptions{Lanes: func([]stream.Lane) {}})
	if err == nil || !strings.Contains(err.Error(), o.Path) {
		t.Errorf("a file that is no database: %v", err)
	}
}

// TestMovedFile checks that no batch is reported as delivered if the file was moved, and that the
// batch is delivered once when the file is back.
func TestMovedFile(t *testing.T) {
	o := options(t, "lines")
	s := open(t, o)
	row := []field{{"a", stream.Text, "1"}}
	if err := s.deliver(t, s.batch(row)); err != nil {
		t.Fatal(err)
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(o.Path, o.Path+".old")
	b := s.batch(row)
	for range 2 {
		err := s.deliver(t, b)
		m, ok := errors.AsType[*stream.Misconfigured](err)
		if !ok || !strings.Contains(m.Error(), "was moved") {
			t.Errorf("%v, want misconfigured: the file was moved", err)
		}
	}
	move(o.Path+".old", o.Path)
	if err := s.deliver(t, b); err != nil {
		t.Error(err)
	}
	if got := column(t, o.Path, `SELECT count(*) FROM lines`); got[0] != "2" {
		t.Errorf("the table has %s rows, want 2", got[0])
	}
}

// TestNewerLedger checks that a ledger of a later format is refused.
func TestNewerLedger(t *testing.T) {
	o := options(t, "lines")
	open(t, o).Close()
	execute(t, o.Path, `UPDATE penstock_routes SET format = 3`)
	s := newSink(t, o, connectortest.NewHost(t))
	defer s.Close()
	err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "main",
		Lanes: func([]stream.Lane) {}})
	if err == nil {
		_, err = s.Load(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "format 3") {
		t.Errorf("a ledger of format 3: %v", err)
	}
}
