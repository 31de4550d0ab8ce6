package httppoll

import (
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
)

// TestFaults checks that all records arrive once although every second request fails. Each case is
// a fault of the network or the server.
func TestFaults(t *testing.T) {
	hijack := func(w nethttp.ResponseWriter, text string) {
		c, _, err := nethttp.NewResponseController(w).Hijack()
		if err == nil {
			io.WriteString(c, text)
			c.Close()
		}
	}
	for _, c := range []struct {
		name  string
		fault func(w nethttp.ResponseWriter, r *nethttp.Request)
	}{
		{"connection closed", func(w nethttp.ResponseWriter, _ *nethttp.Request) { hijack(w, "") }},
		{"header cut", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Le")
		}},
		{"body shorter than Content-Length", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]")
		}},
		{"body longer than Content-Length", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n[{\"id\":1}]")
		}},
		{"chunk cut", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[{\"")
		}},
		{"gzip cut", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x8a"))
		}},
		{"slow body", func(w nethttp.ResponseWriter, r *nethttp.Request) {
			io.WriteString(w, "[")
			nethttp.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"no response", func(_ nethttp.ResponseWriter, r *nethttp.Request) { <-r.Context().Done() }},
		{"502", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(502); io.WriteString(w, "[]") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(25, 10)
			var n atomic.Int64
			server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
				if n.Add(1)%2 == 1 {
					c.fault(w, r)
					return
				}
				a.ServeHTTP(w, r)
			}))
			defer server.Close()
			got, err := readOnce(t, server.URL+"/link", func(o *Options) {
				o.Timeout, o.Retry.Min, o.Retry.Max = 150*time.Millisecond, time.Millisecond, 5*time.Millisecond
			})
			if err != nil || !slices.Equal(got, a.all()) {
				t.Errorf("read %d records of %d: %v", len(got), len(a.all()), err)
			}
		})
	}
}

// readOnce reads a feed to its end, over the network.
func readOnce(t *testing.T, url string, set func(o *Options)) (texts []string, err error) {
	t.Helper()
	o := DefaultOptions()
	o.URL, o.Proxy, o.Interval = url, "none", Interval{Min: minInterval, Max: minInterval}
	set(o)
	s, err := New(*o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	fresh := func(string) (stream.Mark, bool) { return stream.Mark{}, false }
	r, err := s.Open(t.Context(), stream.OpenOptions{Once: true, Resume: fresh})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		b := stream.NewBatch(stream.BatchLimits{})
		err := r.Read(t.Context(), b)
		for i := range b.Records {
			texts = append(texts, string(b.Text(i)))
		}
		if err == io.EOF {
			return texts, nil
		} else if err != nil {
			return texts, err
		}
	}
}

// TestBomb checks that reading stops at the limit if a small body decompresses to a large one.
func TestBomb(t *testing.T) {
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, "[\"")
		io.Copy(z, io.LimitReader(zeros{}, 64<<20))
		z.Close()
	}))
	defer server.Close()
	_, err := readOnce(t, server.URL, func(o *Options) { o.MaxResponse = 1 << 20 })
	if err == nil || !strings.Contains(err.Error(), "larger than max_response (1MiB)") {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// TestGzip checks that compressed pages are read, and that redirects on the same server are
// followed.
func TestGzip(t *testing.T) {
	a := newAPI(3, 10)
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path == "/old" {
			nethttp.Redirect(w, r, "/link", nethttp.StatusFound)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprintf(z, "[%s]", strings.Join(a.all(), ","))
		z.Close()
	}))
	defer server.Close()
	got, err := readOnce(t, server.URL+"/old", func(*Options) {})
	if err != nil || !slices.Equal(got, a.all()) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestBearerFile checks that the token file is read again after a 401 or 403, and that a request
// with the same token is not repeated.
func TestBearerFile(t *testing.T) {
	for _, status := range []int{nethttp.StatusUnauthorized, nethttp.StatusForbidden} {
		t.Run(nethttp.StatusText(status), func(t *testing.T) { testBearerFile(t, status) })
	}
}

func testBearerFile(t *testing.T, status int) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	var n atomic.Int64
	a := newAPI(3, 10)
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if n.Add(1) == 1 {
			write("new")
		}
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(status)
			return
		}
		a.ServeHTTP(w, r)
	}))
	defer server.Close()
	got, err := readOnce(t, server.URL+"/link", func(o *Options) { o.BearerFile = file })
	if err != nil || len(got) != 3 {
		t.Errorf("%q, %v", got, err)
	}
	write("old")
	n.Store(1)
	_, err = readOnce(t, server.URL+"/link", func(o *Options) { o.BearerFile = file })
	if err == nil || n.Load() != 2 {
		t.Errorf("%d requests with a token that the server refuses, want 1: %v", n.Load()-1, err)
	}
}

// TestTLS checks that tls.ca makes a server trusted, and that an untrusted server stops the route.
func TestTLS(t *testing.T) {
	a := newAPI(3, 10)
	server := httptest.NewUnstartedServer(a)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readOnce(t, server.URL+"/link", func(o *Options) { o.TLS.CA = ca })
	if err != nil || len(got) != 3 {
		t.Errorf("%q, %v", got, err)
	}
	_, err = readOnce(t, server.URL+"/link", func(*Options) {})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority: %v", err)
	}
}

// FuzzExtract checks that no response makes the source panic, and that each record is one line.
func FuzzExtract(f *testing.F) {
	f.Add([]byte(`{"data":{"items":[{"id":1},{"id":"a\nb"}]},"next":"x"}`), `</link?page=2>; rel=next`)
	f.Add([]byte("[1, null, \"\\ud800\", {\"id\":1e999}, []]"), "")
	f.Add([]byte("{\"data\":{\"items\":[\n{ }\n]}}"), "<")
	var all []*Options
	for _, set := range modes {
		o := DefaultOptions()
		o.URL, o.Proxy = "http://api.test/x", "none"
		set(o)
		if err := o.Validate(); err != nil {
			f.Fatal(err)
		}
		all = append(all, o)
	}
	f.Fuzz(func(t *testing.T, body []byte, link string) {
		for _, o := range all {
			res := &response{url: o.target, status: 200, header: nethttp.Header{"Link": {link}}, body: body}
			c, err := o.extract(res, "")
			if err != nil {
				continue
			}
			for _, text := range c.records {
				if len(text) == 0 || strings.ContainsAny(string(text), "\r\n") {
					t.Errorf("record %q of %q", text, body)
				}
			}
			if o.mode() == byURL && c.next != "" && o.resolve(c.next).Host != "api.test" {
				t.Errorf("%q leads to %s", link, o.resolve(c.next))
			}
		}
	})
}
