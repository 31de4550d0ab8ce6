package loki_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/loki"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// store accepts pushes like Loki.
type store struct {
	t *testing.T

	mu      sync.Mutex // guards the fields below
	lines   []string
	entries [][]any
	tenant  string
}

func (s *store) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return // the request was cut off
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return
	}
	var push struct {
		Streams []struct {
			Stream map[string]string
			Values [][]any
		}
	}
	if err := json.Unmarshal(text, &push); err != nil || r.URL.Path != "/loki/api/v1/push" {
		s.t.Errorf("%s: %v: %.200q", r.URL.Path, err, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenant = r.Header.Get("X-Scope-OrgID")
	for _, one := range push.Streams {
		s.entries = append(s.entries, one.Values...)
		for _, v := range one.Values {
			s.lines = append(s.lines, v[1].(string))
		}
	}
}

func (s *store) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.lines...)
}

func TestSuite(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
		s := &store{t: t}
		o := loki.DefaultOptions()
		o.Compress, o.Line = "gzip", "raw"
		for range 2 {
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			o.Endpoints = append(o.Endpoints, httpsink.Endpoint{URL: server.URL})
		}
		return connectortest.Receiver{
			New: func(t *testing.T, h *streamtest.Host) stream.Sink {
				sink, err := loki.New(*o, h)
				if err != nil {
					t.Fatal(err)
				}
				return sink
			},
			Received: func(*testing.T) []string { return s.received() },
		}
	}})
}

// TestMetadata checks that fields become structured metadata, and that the tenant is sent.
func TestMetadata(t *testing.T) {
	s := &store{t: t}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	o := loki.DefaultOptions()
	o.Endpoints = []httpsink.Endpoint{{URL: server.URL}}
	o.Tenant, o.MetadataFields = "shop", []string{"trace.id", "user"}
	sink, err := loki.New(*o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	b := connectortest.Records(t, `{"trace.id":"4bf9","user":7}`, `{"user":null}`)
	var lane stream.Lane
	err = sink.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) { lane = all[0] }})
	if err == nil {
		_, err = lane.Worker.Deliver(t.Context(), stream.Attempt{Value: b, ID: 1, Number: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.tenant != "shop" || len(s.entries) != 2 || len(s.entries[0]) != 3 || len(s.entries[1]) != 2 {
		t.Fatalf("tenant %q, entries %v", s.tenant, s.entries)
	}
	if got, _ := json.Marshal(s.entries[0][2]); string(got) != `{"trace_id":"4bf9","user":"7"}` {
		t.Errorf("metadata %s", got)
	}
}

func TestOptions(t *testing.T) {
	for key, change := range map[string]func(*loki.Options){
		"endpoints":       func(o *loki.Options) { o.Endpoints = nil },
		"labels.1a":       func(o *loki.Options) { o.Labels = map[string]string{"1a": "x"} },
		"label_fields":    func(o *loki.Options) { o.LabelFields = []string{"a.b", "a_b"} },
		"metadata_fields": func(o *loki.Options) { o.MetadataFields = []string{"a", "a"} },
		"line":            func(o *loki.Options) { o.Line = "xml" },
		"tenant":          func(o *loki.Options) { o.Tenant = "a\nb" },
	} {
		o := loki.DefaultOptions()
		o.Endpoints = []httpsink.Endpoint{{URL: "http://a"}}
		change(o)
		err := o.Validate()
		if wrong, ok := errors.AsType[*stream.OptionError](err); !ok || wrong.Key != key {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := loki.New(*o, connectortest.NewHost(t)); err == nil {
			t.Errorf("%s: New accepted the options", key)
		}
	}
	many := loki.DefaultOptions()
	many.Endpoints = []httpsink.Endpoint{{URL: "http://a"}}
	many.LabelFields = strings.Split("abcdefghijklmnop", "")
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "16 labels") {
		t.Errorf("16 labels: %v", err)
	}
}

// TestTimesOfReading checks that records without a time of their own have different times, because
// Loki drops a line with the labels, time and text of an earlier one. When a piece of the batch is
// sent again, its records have the same times as before.
func TestTimesOfReading(t *testing.T) {
	s := &store{t: t}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	o := loki.DefaultOptions()
	o.Endpoints = []httpsink.Endpoint{{URL: server.URL}}
	sink, err := loki.New(*o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	b := streamtest.Lines("same", "same", "same")
	b.Split()
	b.Records[2].Off, b.Records[2].Sub = b.Records[1].Off, 1 // made from the second one
	b.Records[2].Origin = b.Records[1].Origin
	var lane stream.Lane
	err = sink.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) { lane = all[0] }})
	for n, piece := range []*stream.Batch{b, b.Pick([]int{1, 2})} {
		if err == nil {
			_, err = lane.Worker.Deliver(t.Context(),
				stream.Attempt{Value: piece, ID: uint64(n + 1), Number: 1})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	times := make(map[any]int)
	for _, e := range s.entries {
		times[e[0]]++
	}
	first := strconv.FormatInt(b.Time.UnixNano(), 10)
	if len(s.entries) != 5 || len(times) != 3 || times[first] != 1 {
		t.Errorf("entries %v, want three times, the first one %s", s.entries, first)
	}
}
