package postgres

import (
	"context"
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

// SlowEnter makes Enter sleep for a second between reading the marks and reading the rows.
func SlowEnter(s *Sink) {
	s.columnsText = strings.Replace(s.columnsText, "FROM pg_attribute",
		"FROM pg_attribute CROSS JOIN pg_sleep(1) AS dawdle", 1)
}
