package retry_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// TestPermanentNetworkErrors checks that failures that another attempt cannot fix are final, both
// as http.Transport returns them and as http.Client wraps them.
func TestPermanentNetworkErrors(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	open := httptest.NewServer(http.NotFoundHandler())
	defer open.Close()
	loop := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
	defer loop.Close()
	for _, c := range []struct {
		name, url string
		change    func(*http.Request)
	}{
		{"unsupported scheme", "gopher://example.test/", nil},
		{"untrusted certificate", secure.URL, nil},
		{"no TLS server", "https" + strings.TrimPrefix(open.URL, "http"), nil},
		{"invalid header name", open.URL, func(r *http.Request) {
			r.Header["bad name"] = []string{"x"}
		}},
		{"invalid header value", open.URL, func(r *http.Request) {
			r.Header["X-Value"] = []string{"a\nb"}
		}},
		{"invalid method", open.URL, func(r *http.Request) { r.Method = "GET IT" }},
		{"no host", "http:///path", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, retries := range []bool{true, false} {
				attempts := 0
				count := func(_ context.Context, e retry.Event) {
					if e.Kind == retry.AttemptStarted {
						attempts++
					}
				}
				o := retry.Options{Policy: backoff.Fixed(0), OnEvent: count}
				client := http.Client{}
				if retries {
					client.Transport = &retry.Transport{Options: o,
						Idempotent: func(*http.Request) bool {
							return true
						}}
					o.MaxAttempts = 1
				}
				err := retry.Do(t.Context(), func(ctx context.Context) error {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
					if err != nil {
						return err
					}
					if c.change != nil {
						c.change(req)
					}
					resp, err := client.Do(req)
					if err != nil {
						return err
					}
					return resp.Body.Close()
				}, retry.Options{Policy: o.Policy, MaxAttempts: o.MaxAttempts, OnEvent: count})
				if want := map[bool]int{true: 2, false: 1}[retries]; attempts > want || err == nil {
					t.Errorf("with Transport %v: %d attempts, %v; want %d", retries, attempts, err,
						want)
				}
				if retry.Classify(err) != retry.Fail {
					t.Errorf("%v is classified as %v", err, retry.Classify(err))
				}
			}
		})
	}
	if _, err := http.Get(loop.URL); retry.Classify(err) != retry.Fail {
		t.Errorf("%v is classified as %v", err, retry.Classify(err))
	}
}

func TestClassifyNetworkErrors(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "http://x/",
			Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	_, address := net.ResolveTCPAddr("tcp", "host:port:extra")
	for _, c := range []struct {
		err  error
		want retry.Action
	}{
		{dial(syscall.ECONNREFUSED), retry.Retry},
		{dial(syscall.ECONNRESET), retry.Retry},
		{dial(os.ErrDeadlineExceeded), retry.Retry},
		{io.ErrUnexpectedEOF, retry.Retry},
		{errors.New("http: server closed idle connection"), retry.Retry},
		{errors.New(`the peer said: "unsupported protocol scheme"`), retry.Retry},
		{dial(&net.DNSError{Err: "no such host", IsNotFound: true}), retry.Fail},
		{dial(&net.DNSError{Err: "server misbehaving", IsTemporary: true}), retry.Retry},
		{dial(&net.DNSError{Err: "timeout", IsTimeout: true}), retry.Retry},
		{&url.Error{Op: "parse", URL: "http://[::1", Err: errors.New("missing ']' in host")},
			retry.Fail},
		{address, retry.Fail},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}, retry.Fail},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, retry.Fail},
		{fmt.Errorf("call: %w", tls.RecordHeaderError{Msg: "not TLS"}), retry.Fail},
		{http.ErrSchemeMismatch, retry.Fail},
		{&retry.Error{Stop: retry.ErrExhausted, Last: io.EOF,
			Errs: []error{http.ErrSchemeMismatch, io.EOF}}, retry.Retry},
	} {
		if got := retry.Classify(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	err := retry.Do(t.Context(), func(context.Context) error {
		return http.ErrSchemeMismatch
	}, retry.Options{
		Policy: backoff.Fixed(0), MaxAttempts: 3, Classify: func(error) retry.Action {
			return retry.Retry
		},
	})
	if !errors.Is(err, retry.ErrExhausted) {
		t.Errorf("%v: a classifier of the caller comes first", err)
	}
}

func TestErrorTimeout(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&retry.Error{Stop: retry.ErrExhausted, Last: timeout}, true},
		{&retry.Error{Stop: retry.ErrExhausted,
			Last: fmt.Errorf("get: %w", retry.ErrAttemptTimeout)}, true},
		{&retry.Error{Stop: context.DeadlineExceeded, Last: errDown}, true},
		{&retry.Error{Stop: retry.ErrExhausted, Last: errDown, Errs: []error{timeout, errDown}},
			false},
		{&retry.Error{Stop: context.Canceled}, false},
	} {
		wrapped := &url.Error{Op: "Get", URL: "http://x/", Err: c.err} // as http.Client does
		if wrapped.Timeout() != c.want {
			t.Errorf("%v: Timeout() = %v, want %v", c.err, wrapped.Timeout(), c.want)
		}
	}
}

func TestTransportIdempotence(t *testing.T) {
	for _, c := range []struct {
		name     string
		header   http.Header
		declared bool
		sent     int
	}{
		{"neither", http.Header{}, false, 1},
		{"nil key", http.Header{"Idempotency-Key": nil}, false, 2},
		{"nil key of the other name", http.Header{"X-Idempotency-Key": {}}, false, 2},
		{"empty key", http.Header{"Idempotency-Key": {""}}, false, 1},
		{"predicate", http.Header{}, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []http.Header
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				if headers = append(headers, r.Header); len(headers) == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			defer srv.Close()
			tr := &retry.Transport{Options: atOnce}
			if c.declared {
				tr.Idempotent = func(r *http.Request) bool { return r.URL.Path == "/search" }
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/search",
				strings.NewReader("query"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = c.header
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if len(headers) != c.sent {
				t.Errorf("%d requests, want %d", len(headers), c.sent)
			}
			for _, h := range headers {
				for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
					if h.Get(name) != "" {
						t.Errorf("the header %s was sent: %q", name, h.Get(name))
					}
				}
			}
		})
	}
}

// TestTransportPrepare checks that Prepare can change every attempt, for example after a refresh of
// the token.
func TestTransportPrepare(t *testing.T) {
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path+" "+r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "token 2" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer srv.Close()
	token := 1
	tr := &retry.Transport{
		Options: retry.Options{
			Policy:  backoff.Fixed(0),
			Refresh: func(context.Context) error { token++; return nil },
		},
		Prepare: func(req *http.Request, a retry.Attempt) error {
			if in := retry.FromContext(req.Context()); in != a {
				t.Errorf("the context reads %+v, want %+v", in, a)
			}
			req.Header.Set("Authorization", fmt.Sprint("token ", token))
			req.URL.Path = fmt.Sprint("/attempt", a.Number)
			return nil
		},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if want := []string{"/attempt1 token 1", "/attempt2 token 2"}; resp.StatusCode != 200 ||
		!slices.Equal(seen, want) {
		t.Errorf("%d after %q, want 200 after %q", resp.StatusCode, seen, want)
	}
	if len(req.Header) > 0 || req.URL.Path != "" {
		t.Errorf("the caller's request was changed: %v %v", req.URL, req.Header)
	}
	tr.Prepare = func(*http.Request, retry.Attempt) error { return retry.Permanent(errDown) }
	if _, err := tr.RoundTrip(req); !errors.Is(err, errDown) ||
		!errors.Is(err, retry.ErrPermanent) {
		t.Errorf("%v, want the error of Prepare", err)
	}
}

// refusing returns a server that responds with 503 to the first requests (times is their number).
// It reads a part of the bodies of these requests, and the whole body of every later one.
func refusing(t *testing.T, times int) (srv *httptest.Server, bodies *[]string) {
	bodies = new([]string)
	var mu sync.Mutex
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(*bodies) < times {
			part := make([]byte, 10)
			n, _ := io.ReadFull(r.Body, part)
			*bodies = append(*bodies, string(part[:n]))
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		whole, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*bodies = append(*bodies, string(whole))
	}))
	return srv, bodies
}

// TestTransportRewindsFiles checks that a file is rewound to the position that it had before the
// request, and is closed exactly once, after the last attempt.
func TestTransportRewindsFiles(t *testing.T) {
	srv, bodies := refusing(t, 3)
	defer srv.Close()
	content := strings.Repeat("0123456789", 200_000)
	path := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(path, []byte("skipped "+content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(8, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, f)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&retry.Transport{Options: atOnce}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := *bodies; len(got) != 4 || got[1] != content[:10] || got[3] != content {
		t.Errorf("%d requests, want 4, the last one with the whole file", len(got))
	}
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is not closed: %v", err)
	}
}

// TestTransportBuffersBodies checks that a body that can be read only once is buffered up to
// MaxBuffer. A longer body is sent once, and the retry then stops with ErrNotRepeatable.
func TestTransportBuffersBodies(t *testing.T) {
	const length = 100_000
	content := strings.Repeat("0123456789", length/10)
	for _, c := range []struct {
		max  int64
		sent int
	}{{length, 3}, {0, 3}, {length - 1, 1}, {-1, 1}} {
		t.Run(fmt.Sprint(c.max), func(t *testing.T) {
			srv, bodies := refusing(t, 2)
			defer srv.Close()
			body := &closeRecorder{Reader: strings.NewReader(content)}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			var stop error
			o := atOnce
			o.OnEvent = func(_ context.Context, e retry.Event) {
				if e.Kind == retry.Stopped {
					stop = e.Stop
				}
			}
			resp, err := (&retry.Transport{Options: o, MaxBuffer: c.max}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			got := *bodies
			if len(got) != c.sent || c.sent == 3 && got[2] != content {
				t.Errorf("%d requests, want %d, the last one with the whole body", len(got), c.sent)
			}
			if errors.Is(stop, retry.ErrNotRepeatable) != (c.sent == 1) {
				t.Errorf("stopped by %v", stop)
			}
			if !body.isClosed() {
				t.Error("the body is not closed")
			}
		})
	}
}

// closeRecorder is a body that cannot be rewound.
type closeRecorder struct {
	io.Reader
	mu     sync.Mutex
	closed bool
}

func (c *closeRecorder) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *closeRecorder) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// TestTransportStaleReader checks that a RoundTripper gets an error if it still reads the body of a
// failed attempt during the next attempt. The next attempt gets the whole body.
func TestTransportStaleReader(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{
		"buffered": io.NopCloser(io.MultiReader(strings.NewReader("the whole body"))),
		"rewound":  struct{ *nopSeeker }{&nopSeeker{bytes.NewReader([]byte("the whole body"))}},
	} {
		t.Run(name, func(t *testing.T) {
			var stale io.Reader
			next := roundTripper(func(req *http.Request) (*http.Response, error) {
				if stale == nil {
					part := make([]byte, 3)
					if _, err := io.ReadFull(req.Body, part); err != nil {
						t.Error(err)
					}
					stale = req.Body
					return nil, errDown // the body may be closed later
				}
				part := make([]byte, 5)
				if _, err := io.ReadFull(req.Body, part); err != nil {
					t.Error(err)
				}
				if n, err := stale.Read(make([]byte, 5)); n != 0 || err == nil {
					t.Errorf("the earlier attempt read %d bytes, %v", n, err)
				}
				rest, err := io.ReadAll(req.Body)
				if got := string(part) + string(rest); got != "the whole body" || err != nil {
					t.Errorf("read %q, %v", got, err)
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody}, req.Body.Close()
			})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
				"http://example.test/", body)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := (&retry.Transport{Next: next,
				Options: atOnce}).RoundTrip(req); err != nil {
				t.Error(err)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type nopSeeker struct{ *bytes.Reader }

func (*nopSeeker) Close() error { return nil }

// TestValueResponseBody checks that AttemptTimeout covers the body of a response that Value
// returns.
func TestValueResponseBody(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 100_000))
	}))
	defer srv.Close()
	resp, err := retry.Value(t.Context(), func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
		if err != nil {
			return nil, err
		}
		return http.DefaultClient.Do(req)
	}, retry.Options{AttemptTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || len(text) != 1_000_000 {
		t.Errorf("read %d bytes, %v", len(text), err)
	}
	synctest.Test(t, func(t *testing.T) {
		resp, err := retry.Value(t.Context(), func(ctx context.Context) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(untilDone{ctx})}, nil
		}, retry.Options{AttemptTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := io.ReadAll(resp.Body); err != retry.ErrAttemptTimeout ||
			time.Since(begun) != time.Minute {
			t.Errorf("%v after %v, want ErrAttemptTimeout after a minute", err, time.Since(begun))
		}
	})
}

// TestValueResponseBodyIsWritable checks that the body of a 101 Switching Protocols response
// remains writable.
func TestValueResponseBodyIsWritable(t *testing.T) {
	var written bytes.Buffer
	resp, err := retry.Value(t.Context(), func(context.Context) (*http.Response, error) {
		return &http.Response{Body: struct {
			io.ReadCloser
			io.Writer
		}{http.NoBody, &written}}, nil
	}, retry.Options{AttemptTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if w, ok := resp.Body.(io.Writer); !ok {
		t.Error("the body is no io.Writer")
	} else if _, err := io.WriteString(w, "ping"); err != nil || written.String() != "ping" {
		t.Errorf("wrote %q, %v", written.String(), err)
	}
}

// untilDone is a body that sends nothing until its context ends.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, context.Cause(u.ctx)
}
