package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/penstock-io/penstock/stream"
)

// codeOf returns the primary code of an error of SQLite, or 0.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xFF
	}
	return 0
}

// broken reports whether the connection must not be used after err. A failed read or write, in
// particular a failed fsync, is never retried on the same handle.
func broken(err error) bool {
	return slices.Contains([]int{codes.SQLITE_IOERR, codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB,
		codes.SQLITE_CANTOPEN, codes.SQLITE_NOMEM, codes.SQLITE_READONLY, codes.SQLITE_MISUSE,
		codes.SQLITE_INTERNAL}, codeOf(err))
}

// refusesRow reports whether err means that the database will never accept the row.
func refusesRow(err error) bool {
	return slices.Contains([]int{codes.SQLITE_CONSTRAINT, codes.SQLITE_MISMATCH,
		codes.SQLITE_TOOBIG, codes.SQLITE_RANGE}, codeOf(err))
}

// rolledBackError means that a refused row has ended the transaction: a constraint has ON CONFLICT
// ROLLBACK, or a trigger has called RAISE(ROLLBACK). The rows after it must not be written. Outside
// of a transaction, they would be committed one by one, without their entries in the ledger.
type rolledBackError struct{ reason error }

func (e *rolledBackError) Error() string { return e.reason.Error() }

// noTransaction reports whether err, from a rollback, means that SQLite had already ended the
// transaction.
func noTransaction(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active")
}

// outcome maps an error to the outcome that Deliver returns: misconfigured for errors of the file
// or of a statement. It keeps the type of any other error. Transient errors (busy, full disk,
// failed I/O) have no outcome type, and are therefore retryable.
func outcome(err error) error {
	switch codeOf(err) {
	case codes.SQLITE_ERROR, codes.SQLITE_PERM, codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN,
		codes.SQLITE_NOTADB, codes.SQLITE_CORRUPT,
		codes.SQLITE_AUTH, codes.SQLITE_SCHEMA:
		return &stream.Misconfigured{Err: err}
	case codes.SQLITE_FULL:
		return fmt.Errorf("%w: free space on its disk", err)
	}
	return err
}
