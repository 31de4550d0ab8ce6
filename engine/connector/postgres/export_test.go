package postgres

import (
	"context"
	"net"
)

// Disguise makes the connections that are still to come be of a kind which the sink does not know, as encrypted ones are.
func Disguise(s *Sink) {
	dial := s.config.DialFunc
	s.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return struct{ net.Conn }{c}, err
	}
}
