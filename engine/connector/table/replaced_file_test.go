package table_test

import (
	"os"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/table"
)

// TestReplacedFile checks that the rows of a file that replaces the open one are read.
func TestReplacedFile(t *testing.T) {
	t.Parallel()
	const create = "CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT); "
	db, path := openSQLite(t)
	execute(t, db, create+"INSERT INTO t VALUES (1)")
	w := fixture{db, func(o *table.Options) { o.SQLite = path }}
	r, err := w.open(t, false, nil, ofTable("t"))
	if err != nil {
		t.Fatal(err)
	}
	if texts, _, err := next(t, r); err != nil || !slices.Equal(texts, []string{`{"k":1}`}) {
		t.Fatalf("read %v, %v", texts, err)
	}
	other, newer := openSQLite(t)
	execute(t, other, create+"INSERT INTO t VALUES (1), (2)")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(newer, path); err != nil {
		t.Fatal(err)
	}
	if texts, _, err := next(t, r); err != nil || !slices.Equal(texts, []string{`{"k":2}`}) {
		t.Errorf("read %v, %v", texts, err)
	}
}
