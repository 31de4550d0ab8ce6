package clickhouse_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/clickhouse"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// server accepts inserts of lines like ClickHouse.
type server struct {
	mu   sync.Mutex // guards the fields below
	rows []string
	last *http.Request
}

func (s *server) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request was cut off
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	s.last = r
}

func TestSuite(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
		s := new(server)
		o := clickhouse.DefaultOptions()
		o.Table, o.Format = "lines", "LineAsString"
		for range 2 {
			one := httptest.NewServer(s)
			t.Cleanup(one.Close)
			o.Endpoints = append(o.Endpoints, httpsink.Endpoint{URL: one.URL})
		}
		return connectortest.Receiver{
			New: func(t *testing.T, h *streamtest.Host) stream.Sink {
				sink, err := clickhouse.New(*o, h)
				if err != nil {
					t.Fatal(err)
				}
				return sink
			},
			Received: func(*testing.T) []string {
				s.mu.Lock()
				defer s.mu.Unlock()
				return append([]string(nil), s.rows...)
			},
		}
	}})
}

// TestQuery checks that database, table, format and settings are in the query of the request. If an
// endpoint has a setting in its URL, this value takes precedence over that of option `settings`.
func TestQuery(t *testing.T) {
	s := new(server)
	one := httptest.NewServer(s)
	t.Cleanup(one.Close)
	send := func(endpoint string, change func(*clickhouse.Options)) (body string, query map[string]string) {
		o := clickhouse.DefaultOptions()
		o.Endpoints, o.Table = []httpsink.Endpoint{{URL: one.URL + endpoint}}, "t"
		change(o)
		sink, err := clickhouse.New(*o, connectortest.NewHost(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sink.Close() })
		b := connectortest.Records(t, `{"a":1}`)
		var lane stream.Lane
		err = sink.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) { lane = all[0] }})
		if err == nil {
			_, err = lane.Worker.Deliver(t.Context(), stream.Attempt{Value: b, ID: 1, Number: 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		query = map[string]string{}
		for key, values := range s.last.URL.Query() {
			query[key] = strings.Join(values, "|")
		}
		return s.rows[len(s.rows)-1], query
	}
	const token = "insert_deduplication_token"
	row, q := send("", func(o *clickhouse.Options) { o.Database, o.Format = "d", "JSONAsObject" })
	if row != `{"a":1}` || q["query"] != "INSERT INTO `d`.`t` FORMAT JSONAsObject" || q["wait_end_of_query"] != "1" ||
		q["wait_for_async_insert"] != "1" || q[token] == "" || q["async_insert"] != "" {
		t.Errorf("sent %s with %v", row, q)
	}
	_, q = send("/?max_threads=2", func(o *clickhouse.Options) {
		o.AsyncInsert, o.Deduplicate = true, false
		o.Settings = map[string]string{"max_threads": "1", "max_insert_block_size": "9"}
	})
	if q["async_insert"] != "1" || q["wait_for_async_insert"] != "1" || q[token] != "" || q["max_threads"] != "2" ||
		q["max_insert_block_size"] != "9" {
		t.Errorf("sent with %v", q)
	}
}

func TestOptions(t *testing.T) {
	setting := func(name string) func(*clickhouse.Options) {
		return func(o *clickhouse.Options) { o.Settings = map[string]string{name: "0"} }
	}
	for key, change := range map[string]func(*clickhouse.Options){
		"endpoints": func(o *clickhouse.Options) {
			other := httpsink.Endpoint{URL: "http://b/?wait_for_async_insert=0"}
			o.Endpoints = append(o.Endpoints, other)
		},
		"table":                          func(o *clickhouse.Options) { o.Table = "" },
		"format":                         func(o *clickhouse.Options) { o.Format = "Native" },
		"settings.wait_for_async_insert": setting("wait_for_async_insert"),
		"settings.Query":                 setting("Query"),
		"settings.a b":                   setting("a b"),
	} {
		o := clickhouse.DefaultOptions()
		o.Endpoints, o.Table = []httpsink.Endpoint{{URL: "http://a"}}, "t"
		change(o)
		err := o.Validate()
		if wrong, ok := errors.AsType[*stream.OptionError](err); !ok || wrong.Key != key {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := clickhouse.New(*o, connectortest.NewHost(t)); err == nil {
			t.Errorf("%s: New accepted the options", key)
		}
	}
}
