package table_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
)

func TestNames(t *testing.T) { names(t, sqliteFixture(t), "", "", `"`) }

// names checks that globs find tables with names that need quotes in the option table, and that
// this option accepts such names in quotes. make creates a schema, unless it is "". quote is the
// quote of SQL.
func names(t *testing.T, w fixture, make, schema, quote string) {
	if make != "" {
		execute(t, w.db, make)
	}
	for _, name := range []string{`n.dot`, `n"quote`, `"n"`, `n select`} {
		quoted := strings.ReplaceAll(name, quote, quote+quote)
		execute(t, w.db, "CREATE TABLE "+quote+quoted+quote+" (id integer PRIMARY KEY)")
		execute(t, w.db, "INSERT INTO "+quote+quoted+quote+" VALUES (1)")
	}
	want := 4
	if schema != "" {
		execute(t, w.db, "CREATE TABLE "+schema+`."n.dot" (id integer PRIMARY KEY)`)
		execute(t, w.db, "INSERT INTO "+schema+`."n.dot" VALUES (1)`)
		want++
	}
	for _, c := range []struct {
		set  func(o *table.Options)
		want int
	}{
		{func(o *table.Options) { o.Tables = []string{"n*", "?n?", "*x*.n*"} }, want},
		{ofTable(`"n.dot"`), 1},
		{ofTable(`n"quote`), 1},
		{ofTable(`"n""quote"`), 1},
		{ofTable(`"""n"""`), 1},
	} {
		r, err := w.open(t, true, nil, c.set)
		if err != nil {
			t.Error(err)
			continue
		}
		texts, _, err := drain(t, r)
		if err != nil || !slices.Equal(texts, slices.Repeat([]string{`{"id":1}`}, c.want)) {
			t.Errorf("read %v, %v; want %d rows", texts, err, c.want)
		}
	}
}

// databaseName checks that the name of a MySQL database may have dots and backticks.
func databaseName(t *testing.T, w fixture, server *connectortest.Server) {
	for _, name := range []string{"a.b", "a`b"} {
		quoted := "`" + strings.ReplaceAll(name, "`", "``") + "`"
		execute(t, w.db, "CREATE DATABASE "+quoted)
		execute(t, w.db, "CREATE TABLE "+quoted+".t (id integer PRIMARY KEY)")
		execute(t, w.db, "INSERT INTO "+quoted+".t VALUES (1)")
		r, err := w.open(t, true, nil, func(o *table.Options) {
			o.MySQL, o.Table = strings.TrimSuffix(server.URL, "test")+name, "t"
		})
		if err != nil {
			t.Error(err)
			continue
		}
		if texts, _, err := drain(t, r); err != nil || !slices.Equal(texts, []string{`{"id":1}`}) {
			t.Errorf("%s: read %v, %v", name, texts, err)
		}
	}
	// Without quotes, the first dot ends the name of the database.
	execute(t, w.db, "CREATE TABLE `test`.`t.u` (id integer PRIMARY KEY)")
	r, err := w.open(t, true, nil, ofTable("test.t.u"))
	if err != nil {
		t.Fatal(err)
	}
	if texts, _, err := drain(t, r); err != nil || len(texts) > 0 {
		t.Errorf("read %v, %v", texts, err)
	}
}

// TestUnknownCollation checks a table that has a column with a collation of another program, such
// as one of Android.
func TestUnknownCollation(t *testing.T) {
	w := sqliteFixture(t)
	execute(t, w.db, "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)")
	execute(t, w.db, "INSERT INTO t VALUES (1, 'x')")
	execute(t, w.db, "PRAGMA writable_schema=ON")
	execute(t, w.db, "UPDATE sqlite_schema SET sql = 'CREATE TABLE t (id INTEGER PRIMARY KEY, "+
		"a TEXT COLLATE LOCALIZED)' WHERE name = 't'")
	r, err := w.open(t, true, nil, ofTable("t"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`{"id":1,"a":"x"}`}
	if texts, _, err := drain(t, r); err != nil || !slices.Equal(texts, want) {
		t.Errorf("read %v, %v", texts, err)
	}
}
