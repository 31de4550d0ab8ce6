package httppoll

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// api is a feed with all ways of paging. Its records are {"id":N,"note":"..."}.
type api struct {
	mu        sync.Mutex // guards the fields below
	records   []string
	limit     int
	inclusive bool // since includes the record with the given id
	requests  []*nethttp.Request
	handle    func(w nethttp.ResponseWriter, r *nethttp.Request) bool // true: it has responded
}

func newAPI(n, limit int) *api {
	a := &api{limit: limit}
	a.add(n)
	return a
}

func (a *api) add(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range n {
		i := len(a.records) + 1
		a.records = append(a.records, fmt.Sprintf(`{"id":%d,"note":"record %d %s"}`, i, i, strings.Repeat("x", i%40)))
	}
}

func (a *api) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.records)
}

// ServeHTTP implements http.Handler. It serves /link, /cursor, /since and /offset.
func (a *api) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r)
	if a.handle != nil && a.handle(w, r) {
		return
	}
	q := r.URL.Query()
	from, _ := strconv.Atoi(cmp.Or(q.Get("after"), q.Get("offset"), q.Get("page")))
	if s := q.Get("since"); s != "" {
		from, _ = strconv.Atoi(s)
		if a.inclusive {
			from--
		}
	}
	from = min(from, len(a.records))
	to := min(from+a.limit, len(a.records))
	page := a.records[from:to]
	next := ""
	if to < len(a.records) {
		next = strconv.Itoa(to)
	}
	switch r.URL.Path {
	case "/link":
		if next != "" {
			w.Header().Set("Link", fmt.Sprintf(`</link?page=%s>; rel="next", </link>; rel=first`, next))
		}
		etag := fmt.Sprintf("%q", strings.Join(page, "")+next)
		w.Header().Set("ETag", strings.ReplaceAll(etag, `\"`, "'"))
		if w.Header().Get("ETag") == r.Header.Get("If-None-Match") {
			w.WriteHeader(nethttp.StatusNotModified)
			return
		}
		io.WriteString(w, "["+strings.Join(page, ",")+"]")
	default:
		if page == nil {
			page = []string{}
		}
		cursor, _ := json.Marshal(next)
		fmt.Fprintf(w, "{\n \"data\": {\"items\": [\n%s]}, \"next\": %s}\n", strings.Join(page, ",\n "), cursor)
	}
}

// roundTripper passes requests to a handler without a network, for tests with virtual time.
type roundTripper struct{ h nethttp.Handler }

func (t roundTripper) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	w := httptest.NewRecorder()
	t.h.ServeHTTP(w, r)
	res := w.Result()
	res.Request = r
	return res, nil
}

// modes holds the options for each way of paging.
var modes = map[string]func(o *Options){
	"link":   func(o *Options) {},
	"cursor": func(o *Options) { o.Records, o.Next, o.Cursor = "body.data.items", "body.next", "after" },
	"after":  func(o *Options) { o.Records, o.After, o.Cursor = "body.data.items", "id", "after" },
	"offset": func(o *Options) { o.Records, o.Offset = "body.data.items", "offset" },
	"since with ids": func(o *Options) {
		o.Records, o.Next, o.Cursor, o.ID = "body.data.items", "last?.id", "since", "id"
	},
}

// newSource returns a source that reads from a without a network.
func newSource(t testing.TB, a nethttp.Handler, path string, h stream.Host, set func(o *Options)) *source {
	t.Helper()
	o := DefaultOptions()
	o.URL, o.Proxy = "http://api.test/"+path, "none"
	set(o)
	s, err := New(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	made := s.(*source)
	made.base = roundTripper{a}
	return made
}

func pathOf(mode string) string {
	if mode == "link" {
		return mode
	}
	return "items"
}

func TestSuite(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			a := newAPI(120, 13)
			a.inclusive = mode == "since with ids"
			connectortest.Source(t, connectortest.SourceCase{
				New: func(t *testing.T, h *streamtest.Host) stream.Source {
					return newSource(t, a, pathOf(mode), h, func(o *Options) {
						o.Interval = Interval{Min: minInterval, Max: minInterval}
						set(o)
					})
				},
				Want: [][]string{a.all()},
			})
		})
	}
}
