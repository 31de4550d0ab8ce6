package retry

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
)

// HedgeTransport is an http.RoundTripper that starts a second request beside a slow one and returns
// the first response, regardless of its status. Put a [Transport] around it to retry by status. See
// [Hedge].
//
// It hedges requests that are idempotent by their method or by a header field Idempotency-Key or
// X-Idempotency-Key. If there is a body, the request must have GetBody. Other requests are sent
// once. A HedgeTransport is safe for concurrent use if its fields do not change after the first
// request.
type HedgeTransport struct {
	// Next sends the requests. Nil means http.DefaultTransport.
	Next http.RoundTripper
	// Options are the settings. The zero value sends each request twice, at once.
	Options HedgeOptions
}

// RoundTrip implements http.RoundTripper.
func (t *HedgeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := cmp.Or(t.Next, http.DefaultTransport)
	hasBody := req.Body != nil && req.Body != http.NoBody
	if !idempotent(req.Method, req.Header) || hasBody && req.GetBody == nil {
		return next.RoundTrip(req)
	}
	if req.Body != nil {
		defer req.Body.Close() // each attempt has its own body
	}
	return Hedge(req.Context(), func(ctx context.Context) (*http.Response, error) {
		attempt := req.Clone(ctx)
		if hasBody {
			body, err := req.GetBody()
			if err != nil {
				return nil, Permanent(fmt.Errorf("copy the body of %s %s: %w", req.Method,
					req.URL.Redacted(), err))
			}
			attempt.Body = body
		}
		return next.RoundTrip(attempt)
	}, t.Options, nil)
}
