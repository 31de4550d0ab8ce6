package nats

import (
	"fmt"
	"maps"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// lostAfter is the time without a connection after which the source reports a failure. Servers that
// restart are back sooner.
const lostAfter = time.Minute

var _ stream.RetryingSource = (*StreamSource)(nil)

// failure returns an error if the client has had no connection for lostAfter.
func (c *client) failure() error {
	lost := c.lost.Load()
	if lost == nil || time.Since(*lost) < lostAfter {
		return nil
	}
	err := fmt.Errorf("NATS %s: not connected for %v; check that the servers run", c.o.URL,
		time.Since(*lost).Round(time.Second))
	if last := c.conn.LastError(); last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// Failure implements stream.RetryingSource.
func (s *StreamSource) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetClosed()
	for c := range s.clients {
		if err := c.failure(); err != nil {
			return err
		}
	}
	return nil
}

// connect connects a client for a reader.
func (s *StreamSource) connect() (*client, error) {
	c, err := s.o.Connection.connect(s.host.Log(), ackBuffer)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetClosed()
	s.clients[c] = true
	return c, nil
}

// forgetClosed deletes closed clients, which would keep their buffers in memory. The caller holds
// s.mu.
func (s *StreamSource) forgetClosed() {
	maps.DeleteFunc(s.clients, func(c *client, _ bool) bool { return c.conn.IsClosed() })
}
