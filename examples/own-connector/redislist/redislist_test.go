package redislist

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/redis/go-redis/v9"
)

var server = &connectortest.Shared{Name: "redis", Program: "redis-server"}

func TestMain(m *testing.M) { os.Exit(server.Run(m)) }

// fresh returns options for a list that does not exist, and a client.
func fresh(t *testing.T) (*Options, *redis.Client) {
	t.Helper()
	o := &Options{URL: server.Get(t).URL, Key: "list"}
	client, err := o.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return o, client
}

// made creates a component. Its client is closed at the end of the test.
func made[T any](t *testing.T, c stream.Component, o *Options, h stream.Host) T {
	t.Helper()
	v, err := c.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := v.(*source); ok {
		t.Cleanup(func() { _ = s.client.Close() })
	}
	return v.(T)
}

func TestSink(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
		o, client := fresh(t)
		return connectortest.Receiver{
			New: func(t *testing.T, h *streamtest.Host) stream.Sink { return made[stream.Sink](t, Sink(), o, h) },
			Received: func(t *testing.T) []string {
				values, err := client.LRange(t.Context(), o.Key, 0, -1).Result()
				if err != nil {
					t.Fatal(err)
				}
				return values
			},
		}
	}})
}

func TestSource(t *testing.T) {
	o, client := fresh(t)
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprintf("record %d %s", i, strings.Repeat("x", i%60)))
	}
	connectortest.Source(t, connectortest.SourceCase{
		New:  func(t *testing.T, h *streamtest.Host) stream.Source { return made[stream.Source](t, Source(), o, h) },
		Want: [][]string{want},
		Reset: func(t *testing.T) {
			if err := errors.Join(client.FlushDB(t.Context()).Err(),
				client.RPush(t.Context(), o.Key, want).Err()); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// TestRoutes checks that records are removed from the list when every route has settled them, and
// not earlier. The positions of the remaining records do not change.
func TestRoutes(t *testing.T) {
	o, client := fresh(t)
	if err := client.RPush(t.Context(), o.Key, "a", "b", "c").Err(); err != nil {
		t.Fatal(err)
	}
	h := connectortest.NewHost(t)
	h.SetRoutes("p/one", "p/two")
	s := made[stream.Source](t, Source(), o, h)
	settle := func(route string, to int64) {
		t.Helper()
		fresh := func(string) (stream.Mark, bool) { return stream.Mark{}, false }
		r, err := s.Open(t.Context(), stream.OpenOptions{Route: route, Resume: fresh})
		if err != nil {
			t.Fatal(err)
		}
		part := *r.(*reader).part
		if err := r.Commit(t.Context(), []stream.Mark{{Part: part, Watermark: stream.Position{Num: to}}}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want int64) {
		t.Helper()
		if n := client.LLen(t.Context(), o.Key).Val(); n != want {
			t.Errorf("%d records are left, want %d", n, want)
		}
	}
	settle("p/one", 2)
	left(3)
	settle("p/two", 1)
	left(2)
	settle("p/two", 3)
	left(1)
}

// TestOutcomes checks that an error of Redis becomes the right outcome. If the key is not a list,
// an operator must correct it: Misconfigured. If Redis is full, deliveries must pause: Throttled.
func TestOutcomes(t *testing.T) {
	o, client := fresh(t)
	if err := client.Set(t.Context(), o.Key, "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := made[*sink](t, Sink(), o, connectortest.NewHost(t))
	t.Cleanup(func() { _ = s.Close() })
	_, err := s.Deliver(t.Context(), stream.Attempt{Value: streamtest.Lines("one")})
	if _, ok := errors.AsType[*stream.Misconfigured](err); !ok {
		t.Errorf("a key that is no list: %v", err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.ConfigSet(t.Context(), "maxmemory", "0").Err() })
	s.key = "another"
	_, err = s.Deliver(t.Context(), stream.Attempt{Value: streamtest.Lines("one")})
	if _, ok := errors.AsType[*stream.Throttled](err); !ok {
		t.Errorf("a full Redis: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ url, key, want string }{
		{"", "k", "url: missing"},
		{"http://127.0.0.1", "k", "url: want redis://"},
		{"redis://u:secret@h:x/0", "k", "url: want redis://"},
		{"redis://127.0.0.1:6379/0", "", "key: missing"},
	} {
		err := (&Options{URL: c.url, Key: c.key}).Validate()
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q, %q: %v, want %q", c.url, c.key, err, c.want)
		}
	}
}

// TestPage checks that the code blocks in docs/connectors.md are identical to the code of this
// module.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/connectors.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range []string{"../main.go", "../penstock.yaml", "options.go", "sink.go",
		"source.go", "redislist_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	blocks := strings.Split(string(page), "```")
	checked := 0
	for i := 1; i < len(blocks); i += 2 {
		kind, text, _ := strings.Cut(blocks[i], "\n")
		if kind != "go" && kind != "yaml" {
			continue
		}
		checked++
		for _, part := range strings.Split(text, "\n\t// ...\n") {
			if !strings.Contains(code.String(), strings.TrimSuffix(part, "\n")) {
				t.Errorf("the page shows what the module does not have:\n%s", part)
			}
		}
	}
	if checked < 6 {
		t.Errorf("only %d blocks of code were found", checked)
	}
}
