package retry_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// TestReadCloserOutlivesItsAttempt checks that if an operation returns only the body, its context
// lives until the body has been read or closed.
func TestReadCloserOutlivesItsAttempt(t *testing.T) {
	rest := strings.Repeat("b", 1<<20) // more than a connection buffers
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, rest)
	}))
	defer server.Close()
	type operation = func(context.Context) (io.ReadCloser, error)
	for name, call := range map[string]func(operation) (io.ReadCloser, error){
		"hedge": func(op operation) (io.ReadCloser, error) {
			return retry.Hedge(t.Context(), op, retry.HedgeOptions{}, nil)
		},
		"value": func(op operation) (io.ReadCloser, error) {
			return retry.Value(t.Context(), op, retry.Options{AttemptTimeout: time.Minute})
		},
	} {
		t.Run(name, func(t *testing.T) {
			contexts := make(chan context.Context, 2)
			body, err := call(func(ctx context.Context) (io.ReadCloser, error) {
				contexts <- ctx
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				if err != nil {
					return nil, err
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return nil, err
				}
				return resp.Body, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(body); len(b) != len(rest) || err != nil {
				t.Errorf("read %d of %d bytes, %v", len(b), len(rest), err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-(<-contexts).Done():
			case <-time.After(10 * time.Second):
				t.Error("the context lives on after the end of the body")
			}
		})
	}
}

// closer is a body that records whether it was closed.
type closer struct {
	io.Reader
	closed chan struct{}
}

func (c closer) Close() error {
	close(c.closed)
	return nil
}

// TestHedgeClosesLateReadClosers checks that Hedge closes a body that comes too late.
func TestHedgeClosesLateReadClosers(t *testing.T) {
	late := closer{strings.NewReader(""), make(chan struct{})}
	_, err := retry.Hedge(t.Context(), func(ctx context.Context) (io.ReadCloser, error) {
		if retry.FromContext(ctx).Number == 1 {
			return io.NopCloser(strings.NewReader("first")), nil
		}
		<-ctx.Done()
		return late, nil
	}, retry.HedgeOptions{Wait: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-late.closed:
	default:
		t.Error("the late body was not closed")
	}
}
