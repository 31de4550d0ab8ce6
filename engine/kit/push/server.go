package push

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

// Server is a source that answers each request when its records are settled. It is safe for
// concurrent use.
type Server struct {
	source
	o    *ServerOptions
	host stream.Host
	ring *listen.Keyring
	pace intake.Pace
}

// NewServer returns a source that refuses requests while it drains. It does not listen.
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

// Client returns the name of the client that sent a header Authorization. ok is false if its token
// is missing or wrong; then the request counts as unauthorized.
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

// WithDeadline returns the context of a request, which ends at the deadline.
func (s *Server) WithDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.o.Deadline, errDeadline)
}

// Admit waits for room for a request of the given number of bytes. It waits at most half of the
// deadline, so that the rest suffices to deliver the records.
func (s *Server) Admit(ctx context.Context, bytes int64) (*intake.Reservation, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Deadline/2, errFull)
	defer cancel()
	return s.Reserve(ctx, bytes)
}

// Await waits until every route has settled a submission of the given number of bytes. If it fails,
// unknown reports whether records of the submission may still be delivered. If unknown is false,
// none was read.
func (s *Server) Await(ctx context.Context, sub *intake.Submission,
	bytes int) (unknown bool, err error) {
	if err = sub.Wait(ctx); err != nil && !errors.Is(err, intake.ErrWithdrawn) {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
		sub.Withdraw(grace)
		cancel()
		switch last := sub.Wait(ctx); {
		case last == nil:
			err = nil // delivered meanwhile
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

// withdrawTime bounds the time in which a route withdraws the data of a request after its deadline.
const withdrawTime = 200 * time.Millisecond

// RetryAfter returns the time after which a refused client should send its request again.
func (s *Server) RetryAfter() time.Duration { return s.pace.RetryAfter(s.Held(), time.Now()) }
