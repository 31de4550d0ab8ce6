package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

var errRevoked = errors.New("the memory of the batch was revoked")

// outcome maps an error to the outcome that Deliver returns, based on its SQLSTATE
// (https://www.postgresql.org/docs/current/errcodes-appendix.html). The table has one complete code
// and several classes of codes, which are their first two characters:
//
//	22, 23, 21, 54, 44, P0   rejected: data, constraints, limits of a value, a trigger that raises
//	42, 28, 3D, 3F, 0A       misconfigured: no such table, column or database, no permission
//	55000                    misconfigured: a key with a deferrable constraint
//	others, or no SQLSTATE   retryable: connection, deadlock, serialization, resources,
//	                         shutdown, read-only standby
func outcome(err error) error {
	if err == nil || sqlspan.Ends(err) != nil {
		return err
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) < 2 {
		return err
	}
	switch class := e.Code[:2]; {
	case slices.Contains([]string{"22", "23", "21", "54", "44", "P0"}, class):
		return &stream.Rejected{Err: described(e)}
	case slices.Contains([]string{"42", "28", "3D", "3F", "0A"}, class), e.Code == "55000":
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// codeOf returns the SQLSTATE of an error of the server, or "".
func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// collided reports whether another session created the same table or type at the same moment. IF
// NOT EXISTS does not prevent such collisions.
func collided(err error) bool {
	return slices.Contains([]string{"42P07", "42710", "23505"}, codeOf(err))
}

// described returns the reason for a dead letter: the server's message without Detail and Where,
// because these contain the row's data.
func described(e *pgconn.PgError) error {
	text := fmt.Sprintf("%s (SQLSTATE %s)", e.Message, e.Code)
	for _, part := range []struct{ what, name string }{{"column", e.ColumnName},
		{"constraint", e.ConstraintName}} {
		if part.name != "" {
			text += fmt.Sprintf(", %s %q", part.what, part.name)
		}
	}
	return errors.New(text)
}

// waited reports whether err means that a statement has waited for a lock for lock_timeout.
func waited(err error) bool { return codeOf(err) == "55P03" }

// ofSession reports whether err is specific to the session, so that a new session may succeed: a
// read-only transaction (25006: a standby, or a server that was a standby when the session began),
// a shutdown (57P0x), or a connection exception (08xxx).
func ofSession(err error) bool {
	code := codeOf(err)
	return code == "25006" || strings.HasPrefix(code, "57P0") || strings.HasPrefix(code, "08")
}

// transient reports whether Load should retry after err.
func transient(err error) bool {
	if code := codeOf(err); len(code) == 5 {
		return collided(err) ||
			slices.Contains([]string{"08", "40", "53", "55", "57", "58", "25"}, code[:2])
	}
	_, unconnected := errors.AsType[*pgconn.ConnectError](err)
	return unconnected || sqldriver.IsDisconnected(err) || pgconn.SafeToRetry(err) ||
		pgconn.Timeout(err)
}
