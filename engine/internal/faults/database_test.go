//go:build linux

package faults

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite"
)

// sqlite runs statements on a database file of the case.
func (r *rig) sqlite(file string, statements ...string) {
	db, err := sql.Open("sqlite", r.path(file)+"?_pragma=busy_timeout(10000)")
	r.check(err)
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			r.fatalf("%s: %v", s, err)
		}
	}
}

// sqliteInsert appends lines to the table lines.
func (r *rig) sqliteInsert(file string, lines []string) {
	var values []string
	for _, l := range lines {
		values = append(values, "('"+l+"')")
	}
	for len(values) > 0 {
		n := min(len(values), 500)
		r.sqlite(file, "INSERT INTO lines (line) VALUES "+strings.Join(values[:n], ","))
		values = values[n:]
	}
}

// storedRows counts the records in a column of a SQLite table. The count is 0 if the database does
// not exist.
func storedRows(file, query string) func(r *rig) tally {
	return func(r *rig) (got tally) {
		if r.read(file) == "" {
			return got
		}
		copied := "copy-of-" + filepath.Base(file) // the disk of the original may be full
		for _, part := range []string{"", "-wal"} {
			r.write(copied+part, r.read(file+part))
		}
		db, err := sql.Open("sqlite", r.path(copied))
		r.check(err)
		defer db.Close()
		err = rows(db, query, &got)
		if err != nil && !strings.Contains(err.Error(), "no such table") {
			r.check(err)
		}
		return got
	}
}

func rows(db *sql.DB, query string, got *tally) error {
	found, err := db.Query(query)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var text sql.NullString
		if err := found.Scan(&text); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		got.add(text.String)
	}
	return found.Err()
}
