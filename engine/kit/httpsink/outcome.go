package httpsink

import (
	"fmt"
	nethttp "net/http"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

// statusOutcome returns the outcome of a response with a certain status, as [flow.HTTPOutcome]
// does, with one exception: after a 409 in response to a request with an idempotency key, the batch
// is sent again. The receiver is still processing an earlier request with this key, which may fail
// (draft-ietf-httpapi-idempotency-key-header-07, section 2.7).
func statusOutcome(r *Response, keyed bool) error {
	if r.Status == nethttp.StatusConflict && keyed {
		return r.StatusError()
	}
	err := flow.HTTPOutcome(&nethttp.Response{StatusCode: r.Status, Header: r.Header})
	switch e := err.(type) {
	case nil:
		return nil
	case *stream.Throttled:
		return &stream.Throttled{After: e.After, Err: r.StatusError()}
	case *stream.Rejected:
		return r.As(control.Rejected)
	case *stream.Misconfigured:
		return r.As(control.Misconfigured)
	}
	return r.StatusError()
}

// As returns the response as an error with the outcome o, or nil if o is Delivered. If o is
// throttled and r.Err contains the time to wait, the returned error contains the same time.
func (r *Response) As(o control.Outcome) error {
	err := r.StatusError()
	switch o {
	case control.Delivered:
		return nil
	case control.Throttled:
		throttled := &stream.Throttled{Err: err}
		if by, ok := r.Err.(*stream.Throttled); ok {
			throttled.After = by.After
		}
		return throttled
	case control.Rejected:
		return &stream.Rejected{Err: err}
	case control.Misconfigured:
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// Where returns the method and endpoint of the request, separated by a space.
func (r *Response) Where() string { return r.Method + " " + r.Endpoint }

// StatusError returns an error that describes the response. As an outcome, it means that the batch
// is retried.
func (r *Response) StatusError() *StatusError {
	return &StatusError{Method: r.Method, Endpoint: r.Endpoint, Status: r.Status, Answer: r.Body}
}

// StatusError means that a response did not report a delivery.
type StatusError struct {
	Method, Endpoint string // the endpoint without user, password and query
	Status           int
	Answer           []byte // the body or its first bytes, unchanged
}

// Error returns the method, endpoint and status, and at most 200 bytes of the body, quoted.
func (e *StatusError) Error() string {
	reason, detail := e.Group()
	if detail == "" {
		return reason
	}
	return reason + ": " + detail
}

// Group implements stream.Grouped. The body of the response is the detail and not a part of the
// reason, because it may name the record or a position in the record.
func (e *StatusError) Group() (reason, detail string) {
	reason = fmt.Sprintf("%s %s: %d %s", e.Method, e.Endpoint, e.Status,
		nethttp.StatusText(e.Status))
	text, more := e.Answer, ""
	if len(text) > maxQuoted {
		text, more = text[:maxQuoted], "..."
	}
	if len(text) == 0 {
		return reason, ""
	}
	return reason, fmt.Sprintf("%q%s", text, more)
}
