// Package drop holds the sink that takes everything and keeps nothing: for measuring what stands before it, and for
// leaving a route out without removing it.
//
// It owns nothing, touches no file and never fails.
package drop

import (
	"context"
	"fmt"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/flow"
)

// Sink delivers at once. It counts records and bytes as records_discarded and bytes_discarded.
type Sink struct{ host penstock.Host }

// Options of the sink.
type Options struct {
	Encode string `yaml:"encode" enum:"none,ndjson" doc:"what batches are made into before they are dropped, to measure that too"`
}

const (
	encodeNone   = "none"
	encodeNDJSON = "ndjson"
)

// Validate says which option is wrong.
func (o *Options) Validate() error {
	if o.Encode != encodeNone && o.Encode != encodeNDJSON {
		return &penstock.OptionError{Key: "encode", Err: fmt.Errorf("%q is not one of %s, %s", o.Encode, encodeNone, encodeNDJSON)}
	}
	return nil
}

// Component is the sink's line in the list of components.
func Component() penstock.Component {
	return penstock.Component{
		Role:    penstock.SinkRole,
		Name:    "drop",
		Options: func() any { return &Options{Encode: encodeNone} },
		New: func(o any, h penstock.Host) (any, error) {
			if o.(*Options).Encode == encodeNDJSON {
				return Encoding{New(h)}, nil
			}
			return New(h), nil
		},
	}
}

// Encoding is a Sink that has batches encoded as JSON lines first. It implements penstock.Encoder.
type Encoding struct{ *Sink }

// Encode implements penstock.Encoder.
func (Encoding) Encode(dst []byte, b *penstock.Batch) ([]byte, error) {
	return ndjson.Append(dst, b), nil
}

// New returns the sink.
func New(h penstock.Host) *Sink { return &Sink{host: h} }

// Open implements penstock.Sink: one lane, named drop, which no limit binds.
func (s *Sink) Open(_ context.Context, o penstock.SinkOptions) error {
	o.Lanes([]penstock.Lane{{Name: "drop", Worker: s, Prompt: true}})
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
