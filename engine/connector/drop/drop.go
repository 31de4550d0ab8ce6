// Package drop implements the sink that accepts all batches and discards them. Use it to measure
// the rest of a pipeline, or to discard the data of a route without removing the route. It never
// fails.
package drop

import (
	"context"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Sink discards each batch and acknowledges it at once. It counts the discarded records and bytes
// in the counters records_discarded and bytes_discarded.
type Sink struct {
	host    stream.Host
	encodes bool
}

// Options are the options of the sink.
type Options struct {
	Encode string `yaml:"encode" enum:"none,ndjson" doc:"encode batches before they are dropped, to measure the encoding, too"`
}

const (
	encodeNone   = "none"
	encodeNDJSON = "ndjson"
)

// Validate returns an error for an invalid option.
func (o *Options) Validate() error { return stream.CheckEnums(o) }

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "drop",
		Options: func() any { return &Options{Encode: encodeNone} },
		New: func(o any, h stream.Host) (any, error) {
			s := New(h)
			s.encodes = o.(*Options).Encode == encodeNDJSON
			return s, nil
		},
	}
}

// New returns a sink that does not encode batches.
func New(h stream.Host) *Sink {
	h.Count("records_discarded", 0)
	h.Count("bytes_discarded", 0)
	return &Sink{host: h}
}

// Encodes implements stream.Encoder. With the option `encode: ndjson`, batches are encoded before
// they are discarded.
func (s *Sink) Encodes() stream.Encoding {
	if s.encodes {
		return stream.EncodeAll
	}
	return stream.EncodeNone
}

// Encode implements stream.Encoder. It encodes JSON lines.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) { return ndjson.Append(dst, b), nil }

// Open implements stream.Sink. It creates one lane without limits, named drop.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: "drop", Worker: s, Inline: true}})
	return nil
}

// Deliver implements stream.Worker. It discards the batch and never fails. It is safe for
// concurrent use and allocates nothing.
func (s *Sink) Deliver(_ context.Context, a stream.Attempt) (stream.Report, error) {
	s.host.Count("records_discarded", int64(a.Value.Kept()))
	s.host.Count("bytes_discarded", a.Value.RawBytes())
	return stream.Report{}, nil
}

// Close implements stream.Sink.
func (s *Sink) Close() error { return nil }
