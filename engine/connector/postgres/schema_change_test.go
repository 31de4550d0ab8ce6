package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// TestColumnChangesBeforeCopy checks that rows encoded for the former type of a column are not
// written if a change of the type commits while the transaction of the batch waits for the table.
// The binary forms of bigint and double precision have the same length, so COPY would accept them.
func TestColumnChangesBeforeCopy(t *testing.T) {
	t.Parallel()
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE changes (n bigint)")
	o := d.options("changes")
	o.OnNewField = "ignore"
	s := open(t, o)
	d.exec(t, "BEGIN")
	d.exec(t, "ALTER TABLE changes ALTER n TYPE double precision")
	b := s.batch([]field{{"n", stream.Number, "2"}})
	delivered := make(chan error, 1)
	go func() { delivered <- s.deliver(t, b) }()
	waiting := "SELECT count(*)::text FROM pg_locks " +
		"WHERE relation = 'changes'::regclass AND NOT granted"
	for d.column(t, waiting)[0] == "0" {
		if len(delivered) > 0 {
			t.Fatalf("the batch did not wait: %v", <-delivered)
		}
	}
	d.exec(t, "COMMIT")
	err := <-delivered
	if _, ok := errors.AsType[*stream.Misconfigured](err); !ok {
		t.Errorf("a column of another type: %v, want misconfigured", err)
	}
	if got := d.column(t, "SELECT n::text FROM changes"); len(got) > 0 {
		t.Errorf("the table has %v, want no row", got)
	}
}

// TestOtherNamesOfTypes checks that a table is created and filled if the option columns has other
// names of types, such as int8 for bigint.
func TestOtherNamesOfTypes(t *testing.T) {
	t.Parallel()
	o := fresh(t, server.Get(t)).options("named")
	var row []field
	for _, name := range []string{"int8", "float8", "int4", "bool", "varchar", "decimal", "jsonb"} {
		o.Columns = append(o.Columns, sqltable.ColumnOption{Name: name, Type: name})
		row = append(row, field{name, stream.Null, ""})
	}
	s := open(t, o)
	if err := s.deliver(t, s.batch(row)); err != nil {
		t.Error(err)
	}
}

// TestEncodingOfDatabase checks that texts are converted to the encoding of the database, and that
// a text that this encoding cannot represent is refused. It also checks that commits are durable
// although the database sets synchronous_commit to off.
func TestEncodingOfDatabase(t *testing.T) {
	t.Parallel()
	d := fresh(t, server.Get(t))
	name := "latin_" + d.schema // the server is shared by all runs of the test
	d.exec(t, "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' "+
		"TEMPLATE template0")
	o := d.options("t")
	o.URL, o.Table = strings.Replace(d.url, "/postgres?", "/"+name+"?", 1), "texts"
	d.exec(t, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	other := connect(t, o.URL+"&client_encoding=UTF8")
	other.exec(t, "CREATE TABLE texts (t text, "+
		"durable text DEFAULT current_setting('synchronous_commit'))")
	s := open(t, o)
	refused := map[string]string{}
	for _, text := range []string{"é", "☃"} {
		s.settle(t, s.batch([]field{{"t", stream.Text, text}}), refused)
	}
	got := other.column(t, "SELECT t || durable FROM texts")
	if !slices.Equal(got, []string{"éon"}) {
		t.Errorf("the table has %q, want é with a durable commit", got)
	}
	part := stream.Partition{ID: "snow", Name: "☃é.log"}
	mark := stream.Mark{Part: part, Watermark: stream.Position{Num: 1}}
	if err := s.Compact(t.Context(), []stream.Mark{mark}); err != nil {
		t.Error(err)
	}
	if len(refused) != 1 || !strings.Contains(refused["☃"], "22P05") {
		t.Errorf("refused: %v, want ☃", refused)
	}
}
