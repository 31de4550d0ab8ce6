package http_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// receiver is a server that keeps every record of every complete request.
type receiver struct {
	t      *testing.T
	ndjson bool

	mu      sync.Mutex // guards records
	records []string
}

func (r *receiver) ServeHTTP(w nethttp.ResponseWriter, req *nethttp.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(req.Body)
		if err != nil {
			return // the request was cut off
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i := range all {
		if r.ndjson {
			var record struct{ Message string }
			if err := json.Unmarshal([]byte(all[i]), &record); err != nil {
				r.t.Errorf("line %.80q: %v", all[i], err)
			}
			all[i] = record.Message
		}
		if strings.Contains(all[i], "\xdb\xdb") {
			r.t.Errorf("a body holds memory that was released: %.80q", all[i])
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, all...)
}

func (r *receiver) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.records...)
}

func TestSuite(t *testing.T) {
	for _, c := range []struct{ body, compress string }{
		{http.Raw, httpsink.None}, {http.NDJSON, httpsink.Gzip},
	} {
		t.Run(c.body+" "+c.compress, func(t *testing.T) {
			connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
				r := &receiver{t: t, ndjson: c.body == http.NDJSON}
				o := http.DefaultOptions()
				o.Body, o.Compress = c.body, c.compress
				for range 2 {
					server := httptest.NewServer(r)
					t.Cleanup(server.Close)
					o.Endpoints = append(o.Endpoints, httpsink.Endpoint{URL: server.URL})
				}
				return connectortest.Receiver{
					New:      func(t *testing.T, h *streamtest.Host) stream.Sink { return newSink(t, h, o) },
					Received: func(*testing.T) []string { return r.received() },
				}
			}})
		})
	}
}

func newSink(t testing.TB, h *streamtest.Host, o *http.Options) *httpsink.Sink {
	t.Helper()
	s, err := http.New(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
