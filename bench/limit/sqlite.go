package limit

import (
	"database/sql"
	"net/url"

	_ "modernc.org/sqlite" // the same driver as in penstock
)

// batchRecords is the number of lines in a transaction.
const batchRecords = 10_000

// insertLines inserts each line into a table with one column. It uses a prepared statement and
// transactions. The database has a write-ahead log and synchronous = FULL.
func insertLines(from, path string) error {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE lines (message TEXT)"); err != nil {
		return err
	}
	insert, err := db.Prepare("INSERT INTO lines VALUES (?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	n := 0
	err = eachLine(from, func(line []byte) error {
		if _, err := insert.Exec(string(line)); err != nil {
			return err
		}
		if n++; n%batchRecords > 0 {
			return nil
		}
		_, err := db.Exec("COMMIT; BEGIN IMMEDIATE")
		return err
	})
	if err != nil {
		return err
	}
	_, err = db.Exec("COMMIT")
	return err
}
