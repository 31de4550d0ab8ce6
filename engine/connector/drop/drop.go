// Package drop holds the sink that takes everything and keeps nothing: for measuring what stands before it, and for
// leaving a route out without removing it.
//
// It owns nothing, touches no file and never fails.
package drop

import (
	"context"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/flow"
)

// Sink delivers at once. It counts records and bytes as records_discarded and bytes_discarded.
type Sink struct{ host penstock.Host }

// Options of the sink: there are none.
type Options struct{}

// Component is the sink's line in the list of components.
func Component() penstock.Component {
	return penstock.Component{
		Role:    penstock.SinkRole,
		Name:    "drop",
		Options: func() any { return new(Options) },
		New:     func(_ any, h penstock.Host) (any, error) { return New(h), nil },
	}
}

// New returns the sink.
func New(h penstock.Host) *Sink { return &Sink{host: h} }

// Open implements penstock.Sink: one lane, named drop, which no limit binds.
func (s *Sink) Open(_ context.Context, o penstock.SinkOptions) error {
	o.Lanes([]penstock.Lane{{Name: "drop", Worker: s}})
	return nil
}

// Deliver implements penstock.Worker. It is safe for concurrent use and allocates nothing.
func (s *Sink) Deliver(_ context.Context, a penstock.Attempt) (flow.Report, error) {
	s.host.Count("records_discarded", int64(a.Value.Kept()))
	s.host.Count("bytes_discarded", a.Value.RawBytes())
	return flow.Report{}, nil
}

// Close implements penstock.Sink.
func (s *Sink) Close() error { return nil }
