package retry

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// StatusError is the failure of an HTTP request with a response status of 400 or above.
type StatusError struct {
	Status int    // such as 503
	Text   string // such as "503 Service Unavailable"
	Method string
	URL    string        // without password
	Wait   time.Duration // the wait for which the server asked; 0 if none
	Keyed  bool          // the request had an Idempotency-Key
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.URL == "" {
		return e.Text
	}
	return fmt.Sprintf("%s %s: %s", cmp.Or(e.Method, http.MethodGet), e.URL, e.Text)
}

// RetryAfter returns the server's hint, which retries follow.
func (e *StatusError) RetryAfter() time.Duration { return e.Wait }

// Action returns how to handle the status:
//
//	Retry      408, 425, 429, 500, 502, 503, 504, 520 to 527, and 409 with an Idempotency-Key
//	Failover   421
//	Refresh    401
//	Fail       all others
func (e *StatusError) Action() Action { return statusAction(e.Status, e.Keyed) }

// Permanent reports whether the request would get the same status again: Action is Fail or Refresh.
// A breaker ignores such an error, because a healthy server sends it.
func (e *StatusError) Permanent() bool { return final(e.Action()) }

// LogValue implements slog.LogValuer. It returns a group of msg, status and wait.
func (e *StatusError) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("msg", e.Error()), slog.Int("status", e.Status)}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return slog.GroupValue(attrs...)
}

// HTTP returns nil for a response with a status below 400, and otherwise a *StatusError with the
// hint from the response's header. It does not read the body, and the caller must still close it.
// Retries handle the error by its status: a 503 is retried, a 404 is not.
func HTTP(resp *http.Response) error {
	if resp.StatusCode < 400 {
		return nil
	}
	e := &StatusError{Status: resp.StatusCode, Text: resp.Status}
	if e.Text == "" {
		e.Text = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	h := resp.Header
	if d, ok := readHint(h.Get("Retry-After"), h.Values("RateLimit"), time.Now()); ok {
		e.Wait = d
	}
	if req := resp.Request; req != nil {
		e.Method, e.Keyed = req.Method, hasKey(req.Header)
		if req.URL != nil {
			e.URL = req.URL.Redacted()
		}
	}
	return e
}

// statusAction returns how to handle an HTTP status. If the request was keyed, 409 means that the
// first copy is still being processed (draft-ietf-httpapi-idempotency-key-header-07, section 2.7).
func statusAction(status int, keyed bool) Action {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
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
	if isOriginFailure(status) {
		return Retry
	}
	return Fail
}

// isOriginFailure reports whether CDNs send status when they cannot reach the origin server.
func isOriginFailure(status int) bool { return status >= 520 && status <= 527 }

// idempotent reports whether sending the request twice has the effect of sending it once (RFC 9110
// section 9.2.2), or whether the server can recognize the second copy by its key.
func idempotent(method string, h http.Header) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		http.MethodPut, http.MethodDelete:
		return true
	}
	return declaresKey(h, "Idempotency-Key") || declaresKey(h, "X-Idempotency-Key")
}

// declaresKey reports whether h has a field of that name, with a value or with no value at all. As
// in net/http, a nil slice declares the request idempotent without sending the field.
func declaresKey(h http.Header, name string) bool {
	values, ok := h[name]
	return ok && (len(values) == 0 || values[0] != "")
}

// hasKey reports whether h has a key by which the server can recognize a second copy.
func hasKey(h http.Header) bool {
	return h.Get("Idempotency-Key") != "" || h.Get("X-Idempotency-Key") != ""
}

// maxDrain is the maximum number of bytes read from an unwanted body so that its connection can be
// reused. If a discarded body is longer, an HTTP/1 connection is closed.
const maxDrain = 64 << 10

// discardBody reads the rest of a body, up to maxDrain, and closes it.
func discardBody(body io.ReadCloser) {
	if body == nil {
		return
	}
	// The errors do not matter, because the response is discarded. net/http closes the connection
	// if it cannot be reused.
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}
