// Package stdout implements the sink that writes records to the standard output of the process.
//
// It writes one batch at a time, in read order, and does not write a batch again after a timeout. A
// slow reader of the output, such as a pager, slows the route down. If a write fails, for example
// because the reader has ended, it is unknown how much of the batch was written. The route then
// stops with the error.
package stdout

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// The formats.
const (
	NDJSON = "ndjson" // an object per line: the fields of a parsed record, else {"message":"..."}
	Raw    = "raw"    // the record's original bytes and a line end
)

// Options are the options of the sink.
type Options struct {
	Format string `yaml:"format" enum:"ndjson,raw" doc:"JSON lines, or the records' bytes"`
}

// Validate returns an error for an invalid option.
func (o *Options) Validate() error {
	if o.Format != NDJSON && o.Format != Raw {
		return stream.OptionErrorf("format", "is %q, want ndjson or raw", o.Format)
	}
	return nil
}

// Exclusive implements stream.ExclusiveUser. No other component may use standard output.
func (*Options) Exclusive() []string { return []string{stream.StandardOutput} }

// Component returns the sink stdout for the process's standard output.
func Component() stream.Component { return To(os.Stdout) }

// To returns the component stdout for the writer w, for programs and tests.
func To(w io.Writer) stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "stdout",
		Options: func() any { return &Options{Format: NDJSON} },
		New: func(o any, h stream.Host) (any, error) {
			options := o.(*Options)
			if err := options.Validate(); err != nil {
				return nil, err
			}
			s := &sink{format: options.Format, w: w, host: h, failed: make(chan struct{})}
			return s, nil
		},
	}
}

// remembered is the number of written batches whose ids the sink keeps, so that it does not write
// them again.
const remembered = 64

// sink writes the batches of one run of a route.
type sink struct {
	format string
	w      io.Writer
	host   stream.Host
	failed chan struct{} // closed by the first failed write

	mu      sync.Mutex // held during a write
	written []string   // ids of the last batches: after a timeout, a batch may be delivered again
	scratch []byte
	err     error // error of the first failed write
}

// Open implements stream.Sink. It creates one lane with at most one batch in flight.
func (s *sink) Open(_ context.Context, o stream.SinkOptions) error {
	s.host.Go("stdout", s.watch)
	o.Lanes([]stream.Lane{{Name: "stdout", Worker: s, Limits: stream.Limits{InFlight: 1}}})
	return nil
}

// watch waits for a failed write. Its error then ends the route permanently.
func (s *sink) watch(ctx context.Context) error {
	select {
	case <-s.failed:
		s.mu.Lock()
		defer s.mu.Unlock()
		return supervise.Final(s.err)
	case <-ctx.Done():
		return nil
	}
}

// Encodes implements stream.Encoder. In format raw, Encode skips unchanged batches.
func (s *sink) Encodes() stream.Encoding {
	if s.format == NDJSON {
		return stream.EncodeAll
	}
	return stream.EncodeChanged
}

// Encode implements stream.Encoder. It appends the bytes to write for b, unless b is an unchanged
// raw batch.
func (s *sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	if s.format == NDJSON {
		return ndjson.Append(dst, b), nil
	}
	if _, whole := b.Whole(); whole {
		return nil, nil
	}
	return b.AppendRaw(dst), nil
}

// Deliver implements stream.Worker. If ctx ends during the write, Deliver still returns only after
// the write.
func (s *sink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	id := a.Value.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return stream.Report{}, context.Cause(ctx)
	}
	if s.err != nil {
		return stream.Report{}, s.err
	}
	if slices.Contains(s.written, id) {
		return stream.Report{}, nil
	}
	if _, err := s.w.Write(s.bytesOf(a.Value)); err != nil {
		s.err = fmt.Errorf("standard output: %w", err)
		close(s.failed)
		return stream.Report{}, s.err
	}
	if len(s.written) == remembered {
		s.written = slices.Delete(s.written, 0, 1)
	}
	s.written = append(s.written, id)
	return stream.Report{}, nil
}

// bytesOf returns the bytes to write for b. If b was encoded before, these are b.Payload. With
// format raw, an unchanged batch (see [stream.Batch.Whole]) was not encoded, and these are its
// bytes as the source has read them. In all other cases bytesOf encodes b now. If the last line has
// no line end, bytesOf adds one.
func (s *sink) bytesOf(b *stream.Batch) []byte {
	data := b.Payload
	if len(data) == 0 {
		if whole, ok := b.Whole(); ok && s.format == Raw {
			data = whole
		} else {
			s.scratch, _ = s.Encode(s.scratch[:0], b)
			data = s.scratch
		}
	}
	if n := len(data); n > 0 && data[n-1] != '\n' { // the source's records have no line end
		s.scratch = append(append(s.scratch[:0], data...), '\n')
		data = s.scratch
	}
	return data
}

// Close implements stream.Sink. It does not close standard output.
func (s *sink) Close() error { return nil }
