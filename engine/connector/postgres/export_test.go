package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
)

// Disguise wraps new connections in a type that the sink does not know. The sink then sends rows
// through the driver, as over an encrypted connection, and not directly to the socket.
func Disguise(s *Sink) {
	dial := s.config.DialFunc
	s.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return struct{ net.Conn }{c}, err
	}
}

// EnterLock is the number of an advisory lock. See [GuardEnter].
const EnterLock = 1

// GuardEnter makes Enter wait for [EnterLock]. At that time, Enter has read the marks (the stored
// watermarks of partitions), but not yet the stored spans of the batch.
func GuardEnter(s *Sink) {
	s.columnsText = strings.Replace(s.columnsText, "FROM pg_attribute", fmt.Sprintf(
		"FROM pg_attribute CROSS JOIN pg_advisory_xact_lock_shared(%d)", EnterLock), 1)
}

// NewEvict returns a function that ends the sessions of suspended processes in the database of s,
// over a new connection, and returns their number. The sink does the same when a transaction has
// waited too long for a lock of another process. But the sink waits until a session has sent
// nothing for ten seconds (patience), and the function does not wait.
func NewEvict(s *Sink) func(ctx context.Context) (int64, error) {
	var found suspended
	return func(ctx context.Context) (ended int64, err error) {
		c, err := server{s}.Connect(ctx)
		if err != nil {
			return 0, err
		}
		defer server{s}.Close(c)
		return found.evict(ctx, c, s.name.Beside(sqlspan.MarksTable).String())
	}
}
