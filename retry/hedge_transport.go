package retry

import (
	"context"
	"fmt"
	"net/http"
)

// HedgeTransport is an http.RoundTripper that starts a second request beside a slow one and returns
// the first response, whatever its status: a [Transport] around it judges that. See [Hedge].
//
// It hedges requests that are idempotent by their method or by a header field Idempotency-Key and
// whose body, if there is one, can be had again by Request.GetBody. Others are sent once. The
// fields must not change once in use; then it is safe for concurrent use.
type HedgeTransport struct {
	// Next sends the requests. Nil means http.DefaultTransport.
	Next http.RoundTripper
	// Options are the settings. The zero value sends each request twice, at once.
	Options HedgeOptions
}

// RoundTrip implements http.RoundTripper.
func (t *HedgeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	hasBody := req.Body != nil && req.Body != http.NoBody
	if !idempotent(req.Method, req.Header) || hasBody && req.GetBody == nil {
		return next.RoundTrip(req)
	}
	if req.Body != nil {
		defer req.Body.Close() // each attempt has a body of its own
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
