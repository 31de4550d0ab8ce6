package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Disguise wraps new connections in a type that the sink does not know, like encrypted connections.
func Disguise(s *Sink) {
	dial := s.config.DialFunc
	s.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return struct{ net.Conn }{c}, err
	}
}

// EnterLock is the number of an advisory lock. See [GuardEnter].
const EnterLock = 1

// GuardEnter makes Enter wait for [EnterLock] between reading the marks and reading the rows.
func GuardEnter(s *Sink) {
	s.columnsText = strings.Replace(s.columnsText, "FROM pg_attribute", fmt.Sprintf(
		"FROM pg_attribute CROSS JOIN pg_advisory_xact_lock_shared(%d)", EnterLock), 1)
}
