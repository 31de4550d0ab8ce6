package httpserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// StateHeader is a header of responses with status 503. It tells the client whether the request's
// records may still be delivered.
const StateHeader = "Penstock-State"

// The values of [StateHeader].
const (
	stateUntaken = "untaken" // no record was accepted: send the request again
	stateUnknown = "unknown" // may still be delivered: send it again with the same Idempotency-Key
)

// handler returns the handler of all paths.
func (s *Server) handler() nethttp.Handler {
	mux := nethttp.NewServeMux()
	mux.HandleFunc("POST "+exact(s.o.path()), s.push)
	mux.HandleFunc("PUT "+exact(s.o.path()), s.push)
	if s.o.Format == Bulk {
		if s.o.Path == "" {
			mux.HandleFunc("POST /{index}/_bulk", s.push)
		}
		mux.HandleFunc("GET /{$}", s.about)
	}
	return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if s.o.Format == Bulk {
			w.Header().Set("X-Elastic-Product", "Elasticsearch") // clients demand it
		}
		mux.ServeHTTP(w, r)
		// When the handler has returned, net/http reads a part of the body that the handler
		// has not read. The deadline bounds the time for this.
		_ = nethttp.NewResponseController(w).SetReadDeadline(time.Now().Add(discardTime))
	})
}

// discardTime bounds the time in which the rest of a refused body is read. Then the connection is
// closed.
const discardTime = 2 * time.Second

// exact returns a pattern that matches only the given path.
func exact(path string) string {
	if strings.HasSuffix(path, "/") {
		return path + "{$}"
	}
	return path
}

// about answers the first request of Elasticsearch clients, which asks for the version.
func (s *Server) about(w nethttp.ResponseWriter, r *nethttp.Request) {
	if _, ok := s.tenant(w, r); ok {
		write(w, reply{200, typeJSON,
			[]byte(`{"name":"penstock","version":{"number":"8.0.0"},"tagline":"You Know, for Search"}` + "\n")})
	}
}

// push handles a request with records.
func (s *Server) push(w nethttp.ResponseWriter, r *nethttp.Request) {
	_ = nethttp.NewResponseController(w).SetWriteDeadline(time.Time{}) // of the previous request
	s.host.Count("requests", 1)
	tenant, ok := s.tenant(w, r)
	if !ok {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxKey {
		s.refuse(w, failure(400, "the Idempotency-Key has %d bytes, at most %d", len(key), maxKey))
		return
	}
	ctx, cancel := s.WithDeadline(r.Context())
	defer cancel()
	visit := s.arrive(r, tenant)
	defer s.service.end(visit.arrival)
	defer visit.arrival.Cancel() // has no effect after visit.answer
	d, hash, room, err := s.receive(ctx, w, r)
	if err != nil {
		visit.refuse(w.Header())
		s.refuse(w, err)
		return
	}
	defer room.Release()
	visit.decoded(&d)
	room.OnRead(func() { s.service.read(visit.arrival) })
	answer, err := s.deliver(ctx, tenant, key, hash, d, room)
	if err != nil {
		visit.refuse(w.Header())
		s.refuse(w, err)
		return
	}
	visit.answer(w.Header())
	write(w, answer)
}

// tenant returns the name of the client that sends the request. This is the configured name of its
// token or, if the source has no tokens, the common name of its certificate. The name is "" if
// there is neither. If the client is not authorized, tenant sends the response and returns false.
func (s *Server) tenant(w nethttp.ResponseWriter, r *nethttp.Request) (string, bool) {
	if !s.HasTokens() {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			return r.TLS.VerifiedChains[0][0].Subject.CommonName, true
		}
		return "", true
	}
	if name, ok := s.Client(r.Header.Get("Authorization")); ok {
		return name, true
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="penstock", Basic realm="penstock"`)
	w.Header().Set("Connection", "close") // the body is not read
	s.writeError(w, 401, errors.New("the token is missing or wrong; send Authorization: Bearer TOKEN"))
	return "", false
}

// receive waits until there is memory for the body, and then reads and decodes the body.
func (s *Server) receive(ctx context.Context, w nethttp.ResponseWriter, r *nethttp.Request) (
	d decoded, hash [sha256.Size]byte, room *intake.Reservation, err error,
) {
	if r.ContentLength > int64(s.o.MaxBody) {
		return d, hash, nil,
			failure(413, "the body has %d bytes, at most %v (max_body); send it in parts", r.ContentLength, s.o.MaxBody)
	}
	index, decode := r.PathValue("index"), s.decode
	switch {
	case len(index) > maxIndex:
		return d, hash, nil,
			failure(400, "the index has %d bytes, at most %d", len(index), maxIndex)
	case index != "":
		decode = bulkInto(index)
	}
	b := &bodyReader{o: &s.o, r: r, conn: nethttp.NewResponseController(w)}
	if room, err = s.Admit(ctx, b.initial()); err != nil {
		return d, hash, nil, s.untaken(err)
	}
	b.room, b.begun = room, time.Now()
	b.until, _ = ctx.Deadline()
	body, err := b.read(ctx)
	if err == nil {
		_ = b.conn.SetReadDeadline(time.Time{}) // otherwise the connection fails at this deadline
		s.host.Count("bytes_received", b.received)
		if r.Header.Get("Idempotency-Key") != "" {
			hash = hashOf(index, body)
		}
		d, err = decode(r.Header.Get("Content-Type"), body, int(s.o.MaxRecord),
			s.expand(ctx, room, int64(len(body))))
		if err != nil && !isStatus(err) && !errors.Is(err, context.Cause(ctx)) {
			err = failure(400, "%w", err)
		}
	}
	if err != nil {
		room.Release()
		if !isStatus(err) {
			err = s.untaken(err) // the deadline has passed
		}
	}
	return d, hash, room, err
}

// hashOf returns the hash of a body. If the path of the request has an index, the hash depends on
// it as well.
func hashOf(index string, body []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	if index != "" {
		_, _ = h.Write([]byte(index + "\n")) // a hash never fails
	}
	_, _ = h.Write(body)
	h.Sum(sum[:0])
	return sum
}

// expand returns a function that reserves bytes for the records of a body, in addition to the bytes
// of the body itself.
func (s *Server) expand(ctx context.Context, r *intake.Reservation, body int64) room {
	return func(bytes int64) error {
		err := r.Expand(ctx, body, bytes)
		if errors.Is(err, intake.ErrTooLarge) {
			return failure(413, "the records of the body take more than %v (memory); send it in "+
				"parts", s.o.Memory)
		}
		return err
	}
}

// isStatus reports whether err determines the status of the response.
func isStatus(err error) bool {
	_, ok := errors.AsType[*statusError](err)
	return ok
}

// untaken returns the error of a request if none of its records were accepted.
func (s *Server) untaken(err error) error {
	return s.busy(stateUntaken, err)
}

// unknown returns the error of a request if its records may still be delivered.
func (s *Server) unknown(err error) error { return s.busy(stateUnknown, err) }

func (s *Server) busy(state string, err error) error {
	return &busyError{state: state, after: s.RetryAfter(), err: err}
}

// busyError is an error for which the response has the status 503.
type busyError struct {
	state string
	after time.Duration
	err   error
}

// Error implements error.
func (e *busyError) Error() string { return e.err.Error() }

// deliver submits the records of a request to the routes. It waits until all routes have settled
// them (delivered, dead-lettered or dropped them) or, with `ack: buffered`, until they are stored.
// If an earlier request has the same key and body, deliver waits for that request instead. It
// submits the new one only if the earlier one has failed.
func (s *Server) deliver(
	ctx context.Context, tenant, key string, hash [sha256.Size]byte, d decoded, room *intake.Reservation,
) (reply, error) {
	if key == "" || s.o.Idempotency == 0 {
		sub, err := room.Submit(d.records, true)
		if err != nil {
			return reply{}, s.untaken(err)
		}
		return d.reply, s.settled(ctx, sub, d.records.Size())
	}
	name := strconv.Itoa(len(tenant)) + ":" + tenant + key
	for {
		entry, mine := s.keys.begin(name, hash, time.Now())
		if mine {
			return s.first(ctx, entry, d, room)
		}
		if entry.hash != hash {
			return reply{}, failure(422, "the Idempotency-Key was used for another body; use a key of its own for each")
		}
		s.host.Count("requests_repeated", 1)
		sub, err := entry.wait(ctx)
		if err != nil {
			return reply{}, s.unknown(err)
		}
		if sub != nil {
			err := sub.Wait(ctx)
			if err == nil {
				return entry.reply, nil
			}
			if ctx.Err() != nil {
				return reply{}, s.unknown(err)
			}
		}
		// The previous request with this key has failed and is not delivered any more. Submit the
		// current request instead.
		s.keys.failed(entry)
	}
}

// first submits a request with a new key.
func (s *Server) first(ctx context.Context, entry *keyed, d decoded, room *intake.Reservation) (reply, error) {
	room.Identify(entry.request())
	sub, err := room.Submit(d.records, true)
	if err != nil {
		s.keys.failed(entry)
		return reply{}, s.untaken(err)
	}
	s.keys.submitted(entry, sub, d.reply)
	err = s.settled(ctx, sub, d.records.Size())
	if busy, ok := errors.AsType[*busyError](err); ok && busy.state == stateUntaken {
		s.keys.failed(entry)
	}
	return d.reply, err
}

// settled waits until all records of a submission are settled (delivered, dead-lettered or
// dropped). If ctx ends earlier, settled withdraws the submission, unless a worker may have
// received some of it.
func (s *Server) settled(ctx context.Context, sub *intake.Submission, size int) error {
	unknown, err := s.Await(ctx, sub, size)
	switch {
	case unknown:
		return s.unknown(err)
	case err != nil:
		return s.untaken(err)
	}
	return nil
}

// refuse responds to a request that has failed, or whose outcome is unknown.
func (s *Server) refuse(w nethttp.ResponseWriter, err error) {
	if busy, ok := errors.AsType[*busyError](err); ok {
		s.host.Count("requests_busy", 1)
		w.Header().Set("Retry-After", strconv.Itoa(int(busy.after/time.Second)))
		w.Header().Set(StateHeader, busy.state)
		text := "not taken: %w; send it again after Retry-After"
		if busy.state == stateUnknown {
			text = "outcome unknown: %w; it may still be delivered: send it again with the same Idempotency-Key"
		}
		s.writeError(w, 503, fmt.Errorf(text, busy.err))
		return
	}
	status := 400
	if e, ok := errors.AsType[*statusError](err); ok {
		status = e.status
	}
	s.host.Count("requests_refused", 1)
	s.log.Debug("request refused", "status", status, "error", err)
	if status == 408 || status == 413 {
		w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	s.writeError(w, status, err)
}

// writeError responds with the text of an error, in the syntax of the format.
func (s *Server) writeError(w nethttp.ResponseWriter, status int, err error) {
	text := err.Error()
	switch s.o.Format {
	case Bulk:
		body := ndjson.AppendString([]byte(`{"error":{"type":"penstock","reason":`), text)
		write(w, reply{status, typeJSON, fmt.Appendf(body, "},\"status\":%d}\n", status)})
	case Loki:
		write(w, reply{status, "text/plain; charset=utf-8", []byte(text + "\n")})
	case OTLP:
		body := ndjson.AppendString([]byte(`{"message":`), text)
		write(w, reply{status, typeJSON, append(body, "}\n"...)})
	default:
		body := ndjson.AppendString([]byte(`{"error":`), text)
		write(w, reply{status, typeJSON, append(body, "}\n"...)})
	}
}

// writeTimeout bounds the time in which a client must read a response.
const writeTimeout = 30 * time.Second

func write(w nethttp.ResponseWriter, r reply) {
	_ = nethttp.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	if r.contentType != "" {
		w.Header().Set("Content-Type", r.contentType)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	if r.status == nethttp.StatusNoContent {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // a client that has disconnected repeats its request
}
