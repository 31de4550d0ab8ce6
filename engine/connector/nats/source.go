package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// Source returns the source's entry in the list of components.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "nats", DefaultSourceOptions, NewSource)
}

// StreamSource reads a stream. With a durable consumer it implements stream.AssignedSource.
type StreamSource struct {
	o    SourceOptions
	host stream.Host

	mu      sync.Mutex       // guards clients
	clients map[*client]bool // of the readers; forgetClosed removes closed ones
}

// These counters are shown from startup, even while they are zero: sharedCounters if the source has
// a durable consumer, otherwise logCounters.
var (
	sharedCounters = []string{
		"redelivered", "redeliveries_merged", "acks_repeated", "naks", "ack_pending_full",
		"acks_failed", "lost_upstream",
	}
	logCounters = []string{"lost_upstream"}
)

// NewSource returns a source. It does not connect.
func NewSource(o SourceOptions, h stream.Host) (*StreamSource, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &StreamSource{o: o, host: h, clients: make(map[*client]bool)}, nil
}

// HasAssignments implements stream.AssignedSource. It reports whether the source uses a durable
// consumer.
func (s *StreamSource) HasAssignments() bool { return s.o.Durable != "" }

// Shared implements stream.SharedSource. It returns nil: the processes of a cluster can share the
// source. Without a durable consumer, its positions are sequences of the stream, which mean the
// same to every process. With one, the source has assignments, and Shared does not matter.
func (s *StreamSource) Shared() error { return nil }

// ackBuffer bounds the bytes of acknowledgements that are kept while no server is connected.
const ackBuffer = 8 << 20

// Open implements stream.Source. It connects, and opens a sharedReader with `durable` or a
// logReader without it.
func (s *StreamSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if s.HasAssignments() && o.Assignments == nil {
		return nil, errors.New("the host of this source must offer OpenOptions.Assignments")
	}
	durable, err := s.durableOf(o.Route)
	if err != nil {
		return nil, err
	}
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	var r stream.Reader
	if s.HasAssignments() {
		r, err = s.openShared(ctx, c, o, durable)
	} else {
		r, err = s.openLog(ctx, c, o)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return r, nil
}

// durableOf returns the name of the durable consumer of a route, or "" without the option durable.
// Each route needs its own, because routes read independently. In place of {route} it has
// PIPELINE=ROUTE: consumers must not have slashes in their names, and pipelines and routes have no
// equals signs.
func (s *StreamSource) durableOf(route string) (string, error) {
	name := s.o.Durable
	if name == "" {
		return "", nil
	}
	if h, ok := s.host.(stream.SourceHost); ok && len(h.Routes()) > 1 &&
		!strings.Contains(name, routeMark) {
		return "", fmt.Errorf(
			"the routes of this pipeline would share the messages of consumer %q; write durable: %s-%s",
			name, name, routeMark)
	}
	name = strings.ReplaceAll(name, routeMark, strings.ReplaceAll(route, "/", "="))
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("durable: %w", err)
	}
	return name, nil
}
