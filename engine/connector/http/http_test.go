package http_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// lines returns a batch of n records of width bytes, including line ends, from pool.
func lines(pool *stream.Pool, n, width int) *stream.Batch {
	b := pool.Get(stream.BatchLimits{Bytes: n * width, Records: n})
	for i := range n {
		b.Data = append(append(b.Data, bytes.Repeat([]byte{'a' + byte(i%26)}, width-1)...), '\n')
	}
	b.Origins = n
	b.Spans = append(b.Spans, stream.Span{
		Part:  &stream.Partition{ID: "p", Name: "p"},
		Range: stream.Range{To: stream.Position{Num: int64(len(b.Data))}},
		Bytes: len(b.Data),
	})
	return b
}

// rawTo returns the one lane of a sink that posts raw records to endpoint. change may modify its
// options.
func rawTo(t testing.TB, endpoint string, change func(*http.Options)) stream.Lane {
	t.Helper()
	return openRaw(t, connectortest.NewHost(t), endpoint, change)
}

// openRaw is rawTo with the given host.
func openRaw(t testing.TB, h *streamtest.Host, endpoint string, change func(*http.Options)) stream.Lane {
	t.Helper()
	o := http.DefaultOptions()
	o.Endpoints, o.Body = []httpsink.Endpoint{{URL: endpoint}}, http.Raw
	if change != nil {
		change(o)
	}
	s := newSink(t, h, o)
	var lane stream.Lane
	if err := s.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) { lane = all[0] }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return lane
}

func deliver(ctx context.Context, lane stream.Lane, b *stream.Batch) error {
	_, err := lane.Worker.Deliver(ctx, stream.Attempt{Value: b, ID: 1, Number: 1})
	return err
}

// answering returns the URL of a server with one handler for all requests.
func answering(t *testing.T, answer nethttp.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func TestOutcomes(t *testing.T) {
	followed := false
	for _, c := range []struct {
		status int
		header string
		check  func(error) bool
	}{
		{200, "", func(err error) bool { return err == nil }},
		{409, "", func(err error) bool { e, ok := err.(*httpsink.StatusError); return ok && e.Status == 409 }},
		{400, "", func(err error) bool { _, ok := errors.AsType[*stream.Rejected](err); return ok }},
		{413, "", func(err error) bool { _, ok := errors.AsType[*stream.Rejected](err); return ok }},
		{401, "", func(err error) bool { _, ok := errors.AsType[*stream.Misconfigured](err); return ok }},
		{302, "Location", func(err error) bool { _, ok := errors.AsType[*stream.Misconfigured](err); return ok }},
		{429, "Retry-After", func(err error) bool {
			e, ok := errors.AsType[*stream.Throttled](err)
			return ok && e.After == 9*time.Second
		}},
		{500, "", func(err error) bool { e, ok := err.(*httpsink.StatusError); return ok && e.Status == 500 }},
	} {
		url := answering(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.URL.Path == "/elsewhere" {
				followed = true
			}
			w.Header().Set("Location", "/elsewhere")
			if c.header == "Retry-After" {
				w.Header().Set("Retry-After", "9")
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, "no\x1b[31m way \xff"+strings.Repeat("x", 300))
		})
		b := lines(new(stream.Pool), 10, 20)
		err := deliver(t.Context(),
			rawTo(t, strings.Replace(url, "http://", "http://me:secret@", 1)+"?token=secret", nil), b)
		if !c.check(err) {
			t.Errorf("status %d gives %v", c.status, err)
		}
		if err == nil {
			continue
		}
		want := fmt.Sprintf(`POST %s/: %d %s: "no\x1b[31m way \xff`, url, c.status, nethttp.StatusText(c.status))
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "secret") || len(text) > 400 {
			t.Errorf("status %d gives %q, want it to hold %q, and no secret", c.status, text, want)
		}
	}
	if followed {
		t.Error("a redirect was followed")
	}
}

func TestRequest(t *testing.T) {
	var got *nethttp.Request
	var body []byte
	url := answering(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	lane := rawTo(t, strings.Replace(url, "http://", "http://me:secret@", 1)+"/in?a=1", func(o *http.Options) {
		o.Method, o.Headers = "PUT", map[string]string{"x-Tenant": "t", "content-type": "text/x-log"}
	})
	b := lines(new(stream.Pool), 3, 5)
	if err := deliver(t.Context(), lane, b); err != nil {
		t.Fatal(err)
	}
	user, password, _ := got.BasicAuth()
	for _, c := range []struct{ what, got, want string }{
		{"method", got.Method, "PUT"},
		{"target", got.RequestURI, "/in?a=1"},
		{"user", user + ":" + password, "me:secret"},
		{"X-Tenant", got.Header.Get("X-Tenant"), "t"},
		{"Content-Type", got.Header.Get("Content-Type"), "text/x-log"},
		{"User-Agent", got.Header.Get("User-Agent"), "penstock"},
		{"Content-Encoding", got.Header.Get("Content-Encoding"), ""},
		{"length", fmt.Sprint(got.ContentLength), "15"},
		{"Idempotency-Key", got.Header.Get("Idempotency-Key"), "accf2fa6c0e58dad0ae8dbb2f0e8beb8"},
		{"Penstock-Spans", got.Header.Get("Penstock-Spans"), "p;0;15"},
		{"body", string(body), "aaaa\nbbbb\ncccc\n"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.what, c.got, c.want)
		}
	}
	for n := range 1000 { // like a batch of a thousand small files
		b.Spans = append(b.Spans, stream.Span{
			Part: &stream.Partition{ID: fmt.Sprint("file-", n)}, Range: stream.Range{To: stream.Position{Num: 1}},
		})
	}
	if err := deliver(t.Context(), lane, b); err != nil {
		t.Fatal(err)
	}
	spans, count, key := got.Header.Get("Penstock-Spans"), got.Header.Get("Penstock-Span-Count"),
		got.Header.Get("Idempotency-Key")
	if spans != "" || count != "1001" || key != "af84e7dfae40809ff89cc50d22129f55" {
		t.Errorf("headers of 1,001 spans: %q", got.Header)
	}
	lane = rawTo(t, url, func(o *http.Options) { o.IdempotencyKey = "false" })
	if err := deliver(t.Context(), lane, b); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Idempotency-Key")+got.Header.Get("Penstock-Span-Count") != "" {
		t.Errorf("headers without idempotency_key: %q", got.Header)
	}
}

// TestCertificates checks that a delivery to a server with an untrusted certificate, or without
// TLS, has the outcome misconfigured.
func TestCertificates(t *testing.T) {
	secure := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(nethttp.ResponseWriter, *nethttp.Request) {
		t.Error("a request came through an unverified certificate")
	}))
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	defer secure.Close()
	plain := answering(t, func(nethttp.ResponseWriter, *nethttp.Request) {})
	for _, url := range []string{secure.URL, strings.Replace(plain, "http:", "https:", 1)} {
		err := deliver(t.Context(), rawTo(t, url, nil), lines(new(stream.Pool), 1, 10))
		if _, ok := errors.AsType[*stream.Misconfigured](err); !ok {
			t.Errorf("Deliver to %s: %v, want misconfigured", url, err)
		}
	}
}
