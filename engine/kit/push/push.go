// Package push has the common parts of sources to which clients push records: the options, and the
// intake with an optional durable buffer. A [Socket] does not acknowledge records. A [Server]
// answers each request when its records are settled (delivered, dead-lettered or dropped) or, with
// a buffer, stored.
package push

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

// source is the part of a push source from which routes read: an intake with an optional durable
// buffer. It implements stream.Source.
type source struct {
	*intake.Intake
	routes stream.Source // the intake, or the buffer that stores the intake's records
}

func newSource(o *Options, maxRecord stream.Size, io intake.Options,
	h stream.Host) (source, error) {
	io.MaxBytes = int64(o.Memory)
	in, routes, err := buffer.New(o.Ack, o.Buffer, maxRecord, io, h)
	return source{in, routes}, err
}

// Open implements stream.Source.
func (s source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if o.Once {
		return nil, listen.ErrOnce
	}
	return s.routes.Open(ctx, o)
}

var _ stream.RetryingSource = source{}

// Failure implements stream.RetryingSource.
func (s source) Failure() error {
	if b, ok := s.routes.(stream.RetryingSource); ok {
		return b.Failure()
	}
	return nil
}

// KeepsRequests implements stream.RequestSource. With a buffer, it returns zero values, because the
// buffer stores all requests in one partition of its own. Without one, it returns the values of the
// intake.
func (s source) KeepsRequests() (own string, keep time.Duration) {
	if s.routes != stream.Source(s.Intake) {
		return "", 0
	}
	return s.Intake.KeepsRequests()
}
