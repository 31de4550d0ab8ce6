package retry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Transport is an http.RoundTripper that retries.
//
// It retries requests that may be sent twice: those with an idempotent method or an Idempotency-Key, whose body, if
// they have one, can be had again (http.NewRequest sees to that for bytes and strings; others set GetBody). All others
// are sent once. Failures to get an answer are retried, and answers whose status asks for it, as [StatusError.Action]
// says; the bodies of the answers in between are drained and closed. When there is no further attempt, the last answer
// is returned as it is, so that the caller sees the 503 and its body; without an answer, or with a context that has
// ended, the error is an *Error.
//
// The fields are not changed once in use; then a Transport is safe for concurrent use, as its Retrier is.
type Transport struct {
	// Next sends the requests; nil means http.DefaultTransport.
	Next http.RoundTripper
	// Retrier has the settings. Its Classify is asked before the status is judged. AttemptTimeout covers the reading
	// of the answer's body too.
	Retrier Retrier
	// NewKeys gives requests that are neither idempotent nor keyed an Idempotency-Key: the attempt's key if there is
	// one, else a new one. Set it if the server honours such keys, and even a POST can be retried.
	NewKeys bool
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	r := t.Retrier
	trip := trip{next: t.Next, req: req, header: req.Header, timeout: r.AttemptTimeout}
	if trip.next == nil {
		trip.next = http.DefaultTransport
	}
	again := idempotent(req.Method, req.Header)
	if !again && t.NewKeys {
		again = true
		trip.header = req.Header.Clone()
		if trip.header == nil {
			trip.header = make(http.Header)
		}
		trip.header.Set("Idempotency-Key", r.keyFor(req.Context()))
	}
	if !again || req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		r.MaxAttempts = 1
	}
	r.Classify = Chain(r.Classify, OnStatus)
	// The end of an attempt must not cut off the body that the caller is going to read: see trip.send.
	r.AttemptTimeout = 0
	return trip.finish(r.Do(req.Context(), trip.attempt))
}

// keyFor is the key of a request: the setting, an outer retry's, or a new one.
func (r *Retrier) keyFor(ctx context.Context) string {
	if r.Key != "" {
		return r.Key
	}
	if outer, ok := FromContext(ctx); ok && outer.Key != "" {
		return outer.Key
	}
	return NewKey()
}

// trip is one request on its way, used by one goroutine.
type trip struct {
	next    http.RoundTripper
	req     *http.Request
	header  http.Header
	timeout time.Duration
	sent    bool // the request's own body went to next, which closes it
	resp    *http.Response
}

// attempt sends the request once and judges the answer.
func (t *trip) attempt(ctx context.Context) error {
	if t.resp != nil {
		discard(t.resp.Body)
		t.resp = nil
	}
	resp, err := t.timed(ctx)
	if err != nil {
		return err
	}
	t.resp = resp
	return HTTP(resp)
}

// timed sends the request with a context that ends with the timeout or with the answer's body.
func (t *trip) timed(ctx context.Context) (*http.Response, error) {
	if t.timeout <= 0 {
		return t.send(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, ErrAttemptTimeout)
	resp, err := t.send(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &timedBody{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

func (t *trip) send(ctx context.Context) (*http.Response, error) {
	req := t.req.WithContext(ctx)
	req.Header = t.header
	if t.sent && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, Permanent(fmt.Errorf("rewind the body of %s %q: %w", req.Method, req.URL.Redacted(), err))
		}
		req.Body = body
	}
	t.sent = true
	return t.next.RoundTrip(req)
}

// finish turns the end of the sequence into what a RoundTripper returns.
func (t *trip) finish(err error) (*http.Response, error) {
	if !t.sent && t.req.Body != nil {
		_ = t.req.Body.Close() // a RoundTripper closes the body in any case; nobody reads it
	}
	if t.resp == nil || err == nil {
		return t.resp, err
	}
	if t.req.Context().Err() != nil {
		discard(t.resp.Body)
		return nil, err
	}
	return t.resp, nil
}

// timedBody ends the attempt's context when the answer has been read or closed.
type timedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel()
	}
	return n, err
}

// Close implements io.Closer.
func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
