package retry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// StatusError is an HTTP answer that was no success.
type StatusError struct {
	Status int    // 503
	Text   string // "503 Service Unavailable"
	Method string
	URL    string        // without user and password
	Wait   time.Duration // what the server asked for; 0: nothing
	Keyed  bool          // the request carried an Idempotency-Key
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.URL == "" {
		return "answered " + e.Text
	}
	return fmt.Sprintf("%s %q: answered %s", e.Method, e.URL, e.Text)
}

// RetryAfter is the server's hint, which every retry around it follows.
func (e *StatusError) RetryAfter() time.Duration { return e.Wait }

// Action is what the status asks for: Retry (408, 425, 429, 500, 502, 503, 504, 520 to 527; 409 with an
// Idempotency-Key), Failover (421), Refresh (401), Fail (all else).
func (e *StatusError) Action() Action { return statusAction(e.Status, e.Keyed) }

// HTTP turns an answer that is no success into a *StatusError, with the hint of its header, and returns nil for status
// 100 to 399. It reads no body: closing it stays with the caller. [OnStatus] classifies the error.
func HTTP(resp *http.Response) error {
	if resp.StatusCode < 400 {
		return nil
	}
	e := &StatusError{Status: resp.StatusCode, Text: resp.Status}
	if e.Text == "" {
		e.Text = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	if d, ok := RetryAfter(resp.Header, time.Now()); ok {
		e.Wait = d
	}
	if req := resp.Request; req != nil {
		e.Method, e.Keyed = req.Method, keyedBy(req.Header)
		if req.URL != nil {
			e.URL = req.URL.Redacted()
		}
	}
	return e
}

// OnStatus is the Classifier for the errors of HTTP: it decides as StatusError.Action does, and has no opinion about
// errors that are no *StatusError.
func OnStatus(err error, _ int) Decision {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return Decision{Action: e.Action(), After: e.Wait}
	}
	return Decision{}
}

// RetryAfter reads how long a server wants to be left alone out of the header of its answer, seen at now: the field
// Retry-After (RFC 9110 section 10.2.3: seconds, or a date in any form that HTTP allows), and without it the field
// RateLimit (draft-ietf-httpapi-ratelimit-headers: the longest t of the policies whose r is 0). false: it does not say,
// or says nothing that can be understood. A date that has passed is a hint of 0. Values too large for a Duration are
// the largest Duration: bounding is the caller's part, HintLimit's in this package.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	return readHint(h.Get("Retry-After"), h.Values("RateLimit"), now)
}

// statusAction is what an HTTP status asks for. keyed: the request carried an Idempotency-Key, whose draft gives some
// statuses a meaning of their own (draft-ietf-httpapi-idempotency-key-header-07, section 2.7): 409, the first request
// is still being worked on; 422, the key was used for another request; 400, the key is missing.
func statusAction(status int, keyed bool) Action {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Retry
	case http.StatusMisdirectedRequest:
		return Failover
	case http.StatusUnauthorized:
		return Refresh
	case http.StatusConflict:
		if keyed {
			return Retry
		}
	}
	// What is left of 5xx says that this server will never do it (501, 505), or is not standard: CDNs use 520 to 527
	// for an origin that cannot be reached.
	if status >= 520 && status <= 527 {
		return Retry
	}
	return Fail
}

// idempotent reports whether doing the request twice is the same as doing it once (RFC 9110 section 9.2.2), or the
// server is told how to see to that.
func idempotent(method string, h http.Header) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return keyedBy(h)
}

// keyedBy reports whether h has a key by which the server recognizes a second copy.
func keyedBy(h http.Header) bool {
	return h.Get("Idempotency-Key") != "" || h.Get("X-Idempotency-Key") != ""
}

// maxDrain is how much of an answer's body is read so that its connection can be used again; a longer one costs the
// connection instead.
const maxDrain = 64 << 10

// discard reads the rest of a body, up to maxDrain, and closes it.
func discard(body io.ReadCloser) {
	if body == nil {
		return
	}
	// Both errors are the old answer's, which nobody will see: the connection is closed if it is not fit for reuse.
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}
