package nats

import (
	"fmt"
	"maps"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// lostAfter is the time without a connection, or with only failed reads, after which the source
// reports a failure. Servers that restart are back sooner.
const lostAfter = time.Minute

var _ stream.RetryingSource = (*StreamSource)(nil)

// failure returns an error if for at least the time lostAfter the client has had no connection, or
// all its reads have failed.
func (c *client) failure() error {
	lost := c.lost.Load()
	if lost == nil {
		if f := c.failing.Load(); f != nil && time.Since(f.since) >= lostAfter {
			return fmt.Errorf("NATS %s: nothing could be read for %v: %w", c.o.URL,
				time.Since(f.since).Round(time.Second), c.denials.explain(f.err))
		}
		return nil
	}
	if time.Since(*lost) < lostAfter {
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
