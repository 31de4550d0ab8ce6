package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/penstock-io/penstock/stream"
)

func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// broken says whether the connection must not be used again: a failed read or write, above all a
// failed fsync, is never retried on the same handle.
func broken(err error) bool {
	switch codeOf(err) & 0xFF {
	case codes.SQLITE_IOERR, codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB, codes.SQLITE_CANTOPEN, codes.SQLITE_NOMEM,
		codes.SQLITE_READONLY, codes.SQLITE_MISUSE, codes.SQLITE_INTERNAL:
		return true
	}
	return false
}

// refusesRow says whether the database will never take a row.
func refusesRow(err error) bool {
	switch codeOf(err) & 0xFF {
	case codes.SQLITE_CONSTRAINT, codes.SQLITE_MISMATCH, codes.SQLITE_TOOBIG, codes.SQLITE_RANGE:
		return true
	}
	return false
}

// noTransaction says that SQLite had ended the transaction by itself.
func noTransaction(err error) bool { return strings.Contains(err.Error(), "no transaction is active") }

// outcome makes of an error of the database what Deliver returns: the file's fault is
// misconfigured, what may pass is tried again (busy, full disk, failed I/O).
func outcome(err error) error {
	switch codeOf(err) & 0xFF {
	case codes.SQLITE_ERROR, codes.SQLITE_PERM, codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN, codes.SQLITE_NOTADB, codes.SQLITE_CORRUPT,
		codes.SQLITE_AUTH, codes.SQLITE_SCHEMA:
		return &stream.Misconfigured{Err: err}
	case codes.SQLITE_FULL:
		return fmt.Errorf("%w: make room on its disk", err)
	}
	return err
}
