package connectortest

import (
	"database/sql"
	"net/url"
	"testing"
)

// OpenSQLite opens the SQLite file at path, so that a test can look at its contents. If the file is
// missing, OpenSQLite creates it. The connection waits up to 10 s for a lock, and is closed when
// the test ends. Writes of the test are not synced to disk.
func OpenSQLite(t testing.TB, path string) *sql.DB {
	t.Helper()
	return OpenDatabase(t, "sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)")
}

// OpenDatabase opens a database, so that a test can look at its contents. The test must import the
// driver. The connection is closed when the test ends.
func OpenDatabase(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Execute runs a statement and fails the test on an error.
func Execute(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Column returns the first column of a query as text, with "" for NULL. It fails the test on an
// error.
func Column(t testing.TB, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s sql.NullString
		if err := rows.Scan(&s); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		all = append(all, s.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}
