package retry_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// TestTransportTriesPermanentFailuresOnce checks that a request is sent once if no server can
// accept it, or if the server refuses the client's side of TLS.
func TestTransportTriesPermanentFailuresOnce(t *testing.T) {
	serve := func(config *tls.Config) *httptest.Server {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = config
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	open := httptest.NewServer(http.NotFoundHandler())
	defer open.Close()
	asking := serve(&tls.Config{ClientAuth: tls.RequireAnyClientCert})
	trusting := &tls.Config{InsecureSkipVerify: true}
	old := trusting.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	short := func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("abc")), 10
	}
	for _, c := range []struct {
		name, url string
		config    *tls.Config
		change    func(*http.Request)
	}{
		{"client certificate required", asking.URL, trusting, nil},
		{"client certificate required, TLS 1.2", asking.URL,
			&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}, nil},
		{"old version", serve(nil).URL, old, nil},
		{"body shorter than declared", open.URL, nil, short},
		{"length without body", open.URL, nil, func(r *http.Request) { r.ContentLength = 10 }},
		{"port out of range", "http://127.0.0.1:99999/", nil, nil},
		{"no URL", open.URL, nil, func(r *http.Request) { r.URL = nil }},
		{"invalid trailer", open.URL, nil, func(r *http.Request) {
			r.Trailer = http.Header{"A\n": nil}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := &http.Transport{TLSClientConfig: c.config}
			defer next.CloseIdleConnections()
			attempts := 0
			rt := &retry.Transport{
				Next: roundTripFunc(func(r *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(r)
					// If a body is shorter than declared, net/http closes the connection. It may
					// then return the error of the closed connection, which is worth a retry,
					// instead of the cause.
					if !errors.Is(err, net.ErrClosed) {
						attempts++
					}
					return resp, err
				}),
				Options: retry.Options{MaxAttempts: 3, Policy: backoff.Fixed(0)},
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, c.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(req)
			}
			if _, err := rt.RoundTrip(req); err == nil || attempts > 1 {
				t.Errorf("%d attempts, %v; want an error after one", attempts, err)
			}
		})
	}
}
