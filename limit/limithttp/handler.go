package limithttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/limit"
)

// Handler is an http.Handler that limits the number of requests that Next serves at once. Requests
// beyond the limit wait in the limiter's queue. Refused requests get 503 Service Unavailable and a
// Retry-After in whole seconds. Set Options.MaxWait to the longest wait that callers accept.
//
// Do not use a Handler for requests that are long by design (event streams, WebSockets, long
// polls): their durations are unrelated to the load. The fields must not change once the Handler is
// in use. A Handler is safe for concurrent use.
type Handler struct {
	// Next serves the requests.
	Next http.Handler

	// Limiter limits the requests. Nil means a limiter made from Options.
	Limiter *limit.Limiter
	Options limit.Options

	// Priority returns the priority of a request, such as limit.High for health checks. Nil means
	// limit.Normal for all.
	Priority func(*http.Request) limit.Priority

	once    sync.Once
	limiter *limit.Limiter // Limiter, or the one made from Options
	err     error          // error in Options
}

// Status returns a snapshot of the limiter, or the zero Status if Options are invalid.
func (h *Handler) Status() limit.Status {
	limiter, err := h.get()
	if err != nil {
		return limit.Status{}
	}
	return limiter.Status()
}

func (h *Handler) get() (*limit.Limiter, error) {
	h.once.Do(func() {
		if h.limiter = h.Limiter; h.limiter == nil {
			h.limiter, h.err = limit.New(h.Options)
		}
	})
	return h.limiter, h.err
}

// ServeHTTP implements http.Handler. It panics if Options are invalid.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	limiter, err := h.get()
	if err != nil {
		panic(err)
	}
	priority := limit.Normal
	if h.Priority != nil {
		priority = h.Priority(req)
	}
	permit, err := limiter.AcquirePriority(req.Context(), priority)
	if err != nil {
		refuse(w, err)
		return
	}
	recorder := &recorder{ResponseWriter: w}
	outcome := limit.Ignored // if Next panics
	defer func() { permit.Done(outcome) }()
	h.Next.ServeHTTP(recorder.as(w), req)
	switch {
	case errors.Is(req.Context().Err(), context.DeadlineExceeded):
		outcome = limit.TimedOut
	case req.Context().Err() == nil:
		outcome = recorder.outcome()
	}
}

// maxRetryAfter bounds the Retry-After of a refusal.
const maxRetryAfter = 60 * time.Second

// refuse responds to a request that got no permit. It also responds if the request's context has
// ended, possibly by a deadline that an outer handler has set. Without a response net/http would
// send 200 OK.
func refuse(w http.ResponseWriter, err error) {
	wait := time.Second
	if refusal, ok := errors.AsType[*limit.RefusedError](err); ok {
		wait = min(refusal.Wait, maxRetryAfter)
	}
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}

// recorder is a ResponseWriter that remembers the status of the response.
type recorder struct {
	http.ResponseWriter
	status int // zero before the header is written
}

func (r *recorder) outcome() limit.Outcome {
	if r.status == 0 {
		return limit.Success
	}
	return statusOutcome(r.status)
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the ResponseWriter for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// as returns r with the optional interfaces of w, such as http.Flusher, that handlers look for by
// type assertion.
func (r *recorder) as(w http.ResponseWriter) http.ResponseWriter {
	flusher, _ := w.(http.Flusher)
	hijacker, _ := w.(http.Hijacker)
	readerFrom, _ := w.(io.ReaderFrom)
	switch {
	case flusher != nil && hijacker != nil && readerFrom != nil: // HTTP/1
		return struct {
			*recorder
			http.Flusher
			http.Hijacker
			io.ReaderFrom
		}{r, flusher, hijacker, readerFrom}
	case flusher != nil && hijacker != nil: // HTTP/1, wrapped by another handler
		return struct {
			*recorder
			http.Flusher
			http.Hijacker
		}{r, flusher, hijacker}
	case flusher != nil: // HTTP/2
		return struct {
			*recorder
			http.Flusher
		}{r, flusher}
	case hijacker != nil:
		return struct {
			*recorder
			http.Hijacker
		}{r, hijacker}
	}
	return r
}
