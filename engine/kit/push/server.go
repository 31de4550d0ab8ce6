package push

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

// Server is a source that answers each request when the request's records are settled or, with a
// buffer, stored. It is safe for concurrent use.
type Server struct {
	source
	o    *ServerOptions
	host stream.Host
	ring *listen.Keyring
	pace intake.Pace
}

// NewServer returns a Server. It does not listen on a port. While the source drains, it refuses
// requests.
func NewServer(o *ServerOptions, io intake.Options, h stream.Host) (*Server, error) {
	io.Refuse = true
	inner, err := newSource(&o.Options, o.MaxRecord, io, h)
	if err != nil {
		return nil, err
	}
	for _, counter := range []string{
		"requests", "bytes_received", "requests_refused", "requests_unauthorized", "requests_busy",
		"requests_withdrawn", "requests_unknown",
	} {
		h.Count(counter, 0)
	}
	return &Server{source: inner, o: o, host: h, ring: listen.NewKeyring(o.Token, o.Tokens)}, nil
}

// HasTokens reports whether clients must send a token.
func (s *Server) HasTokens() bool { return !s.ring.Empty() }

// Client returns the name of the client that has sent the header Authorization. ok is false if the
// token is missing or unknown; Client then counts the request as unauthorized.
func (s *Server) Client(authorization string) (name string, ok bool) {
	if name, ok = s.ring.Authorize(authorization); !ok {
		s.host.Count("requests_unauthorized", 1)
	}
	return name, ok
}

var (
	errDeadline = errors.New("the deadline has passed")
	errFull     = errors.New("the source is full")
)

// WithDeadline returns a context for a request. It ends at the request's deadline.
func (s *Server) WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.o.Deadline, errDeadline)
}

// Admit waits until there is memory for a request with the given number of bytes. It waits for at
// most half of the option `deadline`, so that enough time remains to deliver the records.
func (s *Server) Admit(ctx context.Context, bytes int64) (*intake.Reservation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Deadline/2, errFull)
	defer cancel()
	return s.Reserve(ctx, bytes)
}

// Await waits until every route has settled a submission (delivered, dead-lettered or dropped it)
// or, with a buffer, until the submission is stored. bytes is the size of its records. If ctx ends
// earlier, Await tries to withdraw the submission, and returns an error unless the submission was
// settled meanwhile. With an error, unknown reports whether the records may still be delivered. If
// unknown is false, no worker has received them.
func (s *Server) Await(ctx context.Context, sub *intake.Submission,
	bytes int) (unknown bool, err error) {
	if err = sub.Wait(ctx); err != nil && !errors.Is(err, intake.ErrWithdrawn) {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
		sub.Withdraw(grace)
		cancel()
		switch last := sub.Wait(ctx); {
		case last == nil:
			err = nil // settled meanwhile
		case !errors.Is(last, intake.ErrWithdrawn):
			unknown = true
		}
	}
	switch {
	case err == nil:
		s.pace.Settled(bytes, time.Now())
	case unknown:
		s.host.Count("requests_unknown", 1)
	default:
		s.host.Count("requests_withdrawn", 1)
	}
	return unknown, err
}

// withdrawTime is the maximum time, after the deadline of a request, for which Await waits until a
// route has withdrawn the request's records.
const withdrawTime = 200 * time.Millisecond

// RetryAfter returns the time after which a refused client should repeat its request.
func (s *Server) RetryAfter() time.Duration { return s.pace.RetryAfter(s.Held(), time.Now()) }
