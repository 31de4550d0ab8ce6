package limithttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/limit/limithttp"
)

// TestTimeoutWithCause checks that a request counts as timed out if its deadline passes, even if
// the deadline has a cause of its own, which is then the only error that net/http returns.
func TestTimeoutWithCause(t *testing.T) {
	cause := errors.New("the caller has no more time")
	for name, inBody := range map[string]bool{"no response": false, "in the body": true} {
		synctest.Test(t, func(t *testing.T) {
			hang := func(req *http.Request) error {
				<-req.Context().Done()
				return context.Cause(req.Context())
			}
			transport := &limithttp.Transport{Limiter: limit.Fixed(1),
				Next: trip(func(req *http.Request) (*http.Response, error) {
					if !inBody {
						return nil, hang(req)
					}
					return &http.Response{StatusCode: 200,
						Body: io.NopCloser(reader(func() error { return hang(req) }))}, nil
				})}
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
			defer cancel()
			resp, err := transport.RoundTrip(get(ctx, t, "http://a/"))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if s, _ := transport.Status(""); err != cause || s.Counts.TimedOut != 1 {
				t.Errorf("%s: %v, counts %+v; want the cause and one timeout", name, err, s.Counts)
			}
		})
	}
}

// reader is a body of which each read fails.
type reader func() error

func (r reader) Read([]byte) (int, error) { return 0, r() }
