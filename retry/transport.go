package retry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
)

// defaultMaxBuffer is the value of Transport.MaxBuffer if that is zero.
const defaultMaxBuffer = 1 << 20

// Transport is an http.RoundTripper that retries.
//
// It retries requests that may be sent twice. These are requests with an idempotent method,
// requests with a header field Idempotency-Key or X-Idempotency-Key, requests for which Idempotent
// returns true, and requests for which NewKeys creates a key. As in net/http, a header field with a
// nil value suffices, and is not sent. To send a body again, Transport uses Request.GetBody,
// rewinds an io.Seeker such as a file, or keeps the body in a buffer.
//
// If a request gets no response, Transport sends it again unless the failure is permanent. If it
// gets a response, Transport sends it again if the response's status is retryable. See [Classify]
// and [StatusError.Action].
//
// If no attempt follows, RoundTrip returns the last response, such as a 503 with its body. If there
// is no response, or if the request's context has ended, it returns an *Error. If a request should
// be retried but cannot be sent again, the reason is ErrNotRepeatable. It is in the *Error or, if a
// response is returned, in the event Stopped.
//
// The fields must not change after the first request. A Transport is safe for concurrent use if its
// Options are.
type Transport struct {
	// Next sends the requests. Nil means http.DefaultTransport.
	Next http.RoundTripper
	// Options are the settings. AttemptTimeout covers the reading of the response's body.
	Options Options
	// Idempotent reports whether a request that is not idempotent by its method or header may
	// nevertheless be sent twice. Nil means that no such request may.
	Idempotent func(req *http.Request) bool
	// Prepare, if not nil, is called before each attempt, the first included. It may change req,
	// which is a copy with its own URL and header: set a fresh token, sign it, or choose the host
	// by a.Target. The context of req is the attempt's context. An error is the attempt's failure.
	Prepare func(req *http.Request, a Attempt) error
	// NewKeys adds an Idempotency-Key to requests that may not be sent twice otherwise. The key is
	// Options.Key if it is set, otherwise the key of the attempt in which the request is made,
	// otherwise a random one. Set NewKeys only if the servers honor such keys.
	NewKeys bool
	// MaxBuffer is the maximum number of bytes kept of a request body that has no GetBody and
	// cannot be rewound. A request with a longer body is usually sent once. Zero means 1 MiB. A
	// negative number means that nothing is kept.
	MaxBuffer int64
	// Fallback, if not nil, provides the response, for example from a cache, if the retry stops
	// without a usable one. The err is an *Error. A response with a status that is not retryable,
	// such as a 404, is usable. Fallback is not called if the request's context has ended, an outer
	// retry will try again, or the Options are invalid.
	Fallback func(req *http.Request, err error) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	trip := roundTrip{transport: t, req: req, header: req.Header}
	o := t.Options
	switch {
	case idempotent(req.Method, req.Header), t.Idempotent != nil && t.Idempotent(req):
		trip.prepareBody()
	case t.NewKeys:
		trip.header = req.Header.Clone()
		if trip.header == nil {
			trip.header = make(http.Header)
		}
		trip.header.Set("Idempotency-Key", o.keyFor(req.Context()))
		trip.prepareBody()
	default:
		const text = "%w: %s is not idempotent: set an Idempotency-Key or Transport.Idempotent"
		trip.once = fmt.Errorf(text, ErrNotRepeatable, req.Method)
	}
	o.repeatable, o.beforeWait = trip.repeatable, trip.freeConnection
	send := trip.send
	if o.AttemptTimeout > 0 { // the caller reads the body after the attempt
		send = limitBody(send, o.AttemptTimeout)
		o.AttemptTimeout, o.timed = 0, true
	}
	once := func(ctx context.Context) error { return trip.attempt(ctx, send) }
	return trip.finish(Do(req.Context(), once, o))
}

// keyFor returns the key for a request: Options.Key, the key of the attempt around the request, or
// a new key.
func (o *Options) keyFor(ctx context.Context) string {
	if key := cmp.Or(o.Key, FromContext(ctx).Key); key != "" {
		return key
	}
	return rand.Text()
}

// roundTrip is one call of RoundTrip, used by one goroutine.
type roundTrip struct {
	transport *Transport
	req       *http.Request
	header    http.Header
	once      error   // the reason why the request can be sent only once, or nil
	body      *replay // nil if the body needs no replay
	sent      bool    // the request was passed to Next, which closes its body
	resp      *http.Response
}

// prepareBody makes a body without GetBody repeatable.
func (t *roundTrip) prepareBody() {
	if t.req.Body == nil || t.req.Body == http.NoBody || t.req.GetBody != nil {
		return
	}
	limit := cmp.Or(t.transport.MaxBuffer, defaultMaxBuffer)
	t.body = newReplay(t.req.Body, t.req.ContentLength, max(limit, 0))
}

// repeatable returns the reason why the request cannot be sent again, or nil.
func (t *roundTrip) repeatable() error {
	if t.once != nil || t.body == nil {
		return t.once
	}
	return t.body.err()
}

// attempt sends the request once. It returns an error if there is no response or if the status is a
// failure.
func (t *roundTrip) attempt(
	ctx context.Context, send func(context.Context) (*http.Response, error),
) error {
	if t.resp != nil {
		discardBody(t.resp.Body)
		t.resp = nil
	}
	resp, err := send(ctx)
	if err != nil {
		return err
	}
	t.resp = resp
	return HTTP(resp)
}

// freeConnection is called before a wait. It reads the body of the response into memory and closes
// it, so that the waiting request holds neither a connection nor a permit of a limiter. A body
// larger than maxDrain stays open.
func (t *roundTrip) freeConnection() {
	if t.resp == nil || t.resp.Body == nil || t.resp.Body == http.NoBody {
		return
	}
	body := t.resp.Body
	begin, err := io.ReadAll(io.LimitReader(body, maxDrain+1))
	if err == nil && len(begin) <= maxDrain {
		_ = body.Close() // it has been read to its end
		t.resp.Body = io.NopCloser(bytes.NewReader(begin))
		return
	}
	t.resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), body), body}
}

func (t *roundTrip) send(ctx context.Context) (*http.Response, error) {
	req := t.req.WithContext(ctx)
	req.Header = t.header
	if prepare := t.transport.Prepare; prepare != nil {
		req = req.Clone(ctx)
		if req.Header == nil {
			req.Header = make(http.Header)
		}
		if err := prepare(req, FromContext(ctx)); err != nil {
			return nil, fmt.Errorf("prepare %s %s: %w", req.Method, t.req.URL.Redacted(), err)
		}
	}
	switch {
	case t.body != nil:
		req.Body = t.body.next()
	case t.sent && t.req.GetBody != nil:
		body, err := t.req.GetBody()
		if err != nil {
			return nil, Permanent(fmt.Errorf("rewind the body of %s %s: %w", req.Method,
				req.URL.Redacted(), err))
		}
		req.Body = body
	}
	t.sent = true
	return cmp.Or(t.transport.Next, http.DefaultTransport).RoundTrip(req)
}

// finish turns the end of the retry into the results of RoundTrip.
func (t *roundTrip) finish(err error) (*http.Response, error) {
	switch {
	case t.body != nil:
		t.body.finish()
	case !t.sent && t.req.Body != nil:
		_ = t.req.Body.Close() // RoundTrip must close the body even if nothing was sent
	}
	if err == nil {
		return t.resp, nil
	}
	canceled := t.req.Context().Err() != nil
	fallback := t.transport.Fallback
	switch {
	case t.resp != nil && !canceled && (fallback == nil || stoppedBy(err, ErrPermanent)):
		return t.resp, nil
	case t.resp != nil:
		discardBody(t.resp.Body)
	}
	if fallback == nil || canceled || stoppedBy(err, ErrNested, ErrOptions) {
		return nil, err
	}
	resp, failed := fallback(t.req, err)
	if failed != nil {
		return nil, &fallbackError{err, failed}
	}
	return resp, nil
}
