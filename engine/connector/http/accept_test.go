package http_test

import (
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

func TestAccept(t *testing.T) {
	for _, c := range []struct {
		accept expr.Text
		body   string
		status int
		want   string // "" means delivered
	}{
		{`status == 202`, "", 202, ""},
		{`status == 202`, "later", 200, `200 OK: "later"; accept: status == 202 is false`},
		{`status in [200, 404]`, "", 404, ""},
		{`status == 200 and trim(body) == "success"`, " success\n", 200, ""},
		{`status == 200 and trim(body) == "success"`, "queued", 200, `200 OK: "queued"; accept: status == 200`},
		{`fromJSON(body).ok == true`, `{"ok":true}`, 200, ""},
		{`fromJSON(body).ok == true`, `{"ok":false}`, 200, "is false"},
		{`fromJSON(body).ok == true`, `<html>`, 200, "cannot be evaluated"},
		{`fromJSON(body).ok == true`, `<html>`, 502, "cannot be evaluated"},
		{`status == 200`, "", 400, "rejected"},
		{`status == 200`, "", 401, "misconfigured"},
		{`status == 200`, "", 429, "throttled"},
		{`len(body) == 65536`, strings.Repeat("x", 100_000), 200, ""},
	} {
		url := answering(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		lane := rawTo(t, url, func(o *http.Options) { o.Accept = c.accept })
		err := deliver(t.Context(), lane, lines(new(stream.Pool), 3, 10))
		got := ""
		switch e := err.(type) {
		case nil:
		case *stream.Rejected:
			got = "rejected"
		case *stream.Misconfigured:
			got = "misconfigured"
		case *stream.Throttled:
			got = "throttled"
		case *http.NotAcceptedError:
			got = e.Error()
		default:
			got = fmt.Sprintf("%T %v", err, err)
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("accept: %s of %d %.20q: %q, want %q", c.accept, c.status, c.body, got, c.want)
		}
	}
}

// keyed delivers a batch of JSON records, and returns the keys that the server saw.
func keyed(t *testing.T, key expr.Text, records ...string) (seen []string, err error) {
	t.Helper()
	url := answering(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		seen = append(seen, r.Header.Get("Idempotency-Key"))
	})
	o := http.DefaultOptions()
	o.Endpoints, o.IdempotencyKey = []httpsink.Endpoint{{URL: url}}, key
	s := newSink(t, connectortest.NewHost(t), o)
	t.Cleanup(func() { _ = s.Close() })
	var lane stream.Lane
	if err := s.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) { lane = all[0] }}); err != nil {
		t.Fatal(err)
	}
	b := connectortest.Records(t, records...)
	if err := b.Encode(s); err != nil {
		t.Fatal(err)
	}
	before := len(b.Data)
	err = deliver(t.Context(), lane, b)
	if len(b.Data) != before {
		t.Error("a delivery wrote into the batch")
	}
	return seen, err
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		key          expr.Text
		record, want string
	}{
		{"order", `{"order":"A-17"}`, "A-17"},
		{"order", `{"order":17}`, "17"},
		{"order", `{"order":17.50}`, "17.50"},
		{"order", `{"order":true}`, "true"},
		{`"shop-" + string(order)`, `{"order":17}`, "shop-17"},
		{"order + 1", `{"order":17}`, "18"},
		{"order ?? meta.id", `{}`, "a@3"},
		{`"all"`, `{}`, "all"},
		{"meta.id", `{"order":"a"}`, "a@14"},
	} {
		seen, err := keyed(t, c.key, c.record)
		if err != nil || len(seen) != 1 || seen[0] != c.want {
			t.Errorf("idempotency_key: %s of %s is %q (%v), want %q", c.key, c.record, seen, err, c.want)
		}
	}
	two := []string{`{"order":"a"}`, `{"order":"b"}`}
	first, _ := keyed(t, "order", two...)
	again, _ := keyed(t, "order", two...)
	other, _ := keyed(t, "order", `{"order":"ab"}`, `{"order":""}`)
	joined, _ := keyed(t, "order", `{"order":"a"}`, `{"order":"c"}`)
	if len(first) != 1 || len(first[0]) != 32 || first[0] != again[0] || joined[0] == first[0] || len(other) != 0 {
		t.Errorf("keys of several records: %q, again %q, others %q, with an empty one %q", first, again, joined, other)
	}
	odd, err := keyed(t, "order", `{"order":"two words"}`)
	if err != nil || len(odd[0]) != 32 {
		t.Errorf("the key of a value that no header holds is %q (%v)", odd, err)
	}
	for _, body := range []string{`{"order":null}`, `{"order":""}`, `{"other":1}`} {
		_, err := keyed(t, "order", body)
		if _, ok := errors.AsType[*stream.Rejected](err); !ok ||
			!strings.Contains(err.Error(), "idempotency_key order") {
			t.Errorf("%s without a key: %v, want rejected", body, err)
		}
	}
}
