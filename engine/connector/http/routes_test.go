package http_test

import (
	nethttp "net/http"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// TestKeysOfRoutes checks that batches of different routes have different idempotency keys, even if
// their spans are equal. Their records may differ, as each route has its own processors.
func TestKeysOfRoutes(t *testing.T) {
	var got string
	url := answering(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		got = r.Header.Get("Idempotency-Key")
	})
	keys := make(map[string]int)
	for _, o := range []stream.SinkOptions{
		{Pipeline: "a", Route: "errors"}, {Pipeline: "a", Route: "rest"},
		{Pipeline: "b", Route: "errors"}, {Pipeline: "a", Route: "errors"},
	} {
		options := http.DefaultOptions()
		options.Endpoints = []httpsink.Endpoint{{URL: url}}
		s := newSink(t, connectortest.NewHost(t), options)
		var lane stream.Lane
		o.Lanes = func(all []stream.Lane) { lane = all[0] }
		err := s.Open(t.Context(), o)
		if err == nil {
			err = deliver(t.Context(), lane, lines(new(stream.Pool), 3, 5))
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		keys[got]++
	}
	if len(keys) != 3 || keys[got] != 2 || got == "" {
		t.Errorf("keys %v, want three, of which two are of the same route", keys)
	}
	if want := "892398814b46e5a9d60f4fa4a46a72d8"; got != want {
		t.Errorf("key %s, want %s, which must not change", got, want)
	}
}
