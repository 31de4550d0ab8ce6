package http_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name, key, want string
		change          func(*http.Options)
	}{
		{"none", "endpoints", "at least one URL", func(o *http.Options) { o.Endpoints = nil }},
		{"not a URL", "endpoints", "endpoint 1: it is not a URL", func(o *http.Options) {
			o.Endpoints[0].URL = "http://a:secret@%zz"
		}},
		{"scheme", "endpoints", `endpoint 2: its scheme is "ftp"`, func(o *http.Options) {
			o.Endpoints[1].URL = "ftp://secret@a/"
		}},
		{"no scheme", "endpoints", "http://", func(o *http.Options) { o.Endpoints[1].URL = "a:8080/in" }},
		{"no host", "endpoints", "it has no host",
			func(o *http.Options) { o.Endpoints[1].URL = "http:///in" }},
		{"fragment", "endpoints", "fragment", func(o *http.Options) { o.Endpoints[1].URL = "http://a/in#secret" }},
		{"twice", "endpoints", "endpoint 2, http://a:8080/in, is given", func(o *http.Options) {
			o.Endpoints[1] = o.Endpoints[0]
		}},
		{"method", "method", `is "GET", want POST, PUT or PATCH`, func(o *http.Options) { o.Method = "GET" }},
		{"body", "body", `is "xml", want ndjson, json_array, raw, elasticsearch_bulk, loki or clickhouse`, func(o *http.Options) {
			o.Body = "xml"
		}},
		{"compress", "compress", `is "zip", want none or gzip`, func(o *http.Options) { o.Compress = "zip" }},
		{"connect timeout", "connect_timeout", "write a time above 0", func(o *http.Options) { o.ConnectTimeout = 0 }},
		{"accept of what is not there", "accept", `there is no field "state"`, func(o *http.Options) {
			o.Accept = "state == 200"
		}},
		{"accept is not a condition", "accept", "is not a condition",
			func(o *http.Options) { o.Accept = "status + 1" }},
		{"accept of other types", "accept", "== stands between a number and text", func(o *http.Options) {
			o.Accept = `status == "200"`
		}},
		{"accept of a record", "accept", "meta belongs to records",
			func(o *http.Options) { o.Accept = "meta.id == body" }},
		{"accept of a store", "accept", "remove it", func(o *http.Options) {
			o.Accept, o.Body = "status == 200", http.ClickHouse
		}},
		{"parameter of a store", "endpoints", "endpoint 1 sets wait_for_async_insert", func(o *http.Options) {
			o.Body, o.ClickHouse.Table = http.ClickHouse, "t"
			o.Endpoints = []httpsink.Endpoint{{URL: "http://a/?wait_for_async_insert=0"}}
		}},
		{"proxy of names", "proxy", "has no effect", func(o *http.Options) {
			o.Endpoints = []httpsink.Endpoint{{DNS: "a.test", Port: 80}}
			o.Proxy = "http://me:secret@p:3128"
		}},
		{"header name", "headers.a b", "not allowed in a header name", func(o *http.Options) {
			o.Headers = map[string]string{"a b": "secret"}
		}},
		{"empty header", "headers.", "the name is empty", func(o *http.Options) {
			o.Headers = map[string]string{"": "secret"}
		}},
		{"our header", "headers.idempotency-key", "remove it", func(o *http.Options) {
			o.Headers = map[string]string{"idempotency-key": "secret"}
		}},
		{"sender header", "headers.penstock-sender", "remove it", func(o *http.Options) {
			o.Headers = map[string]string{"penstock-sender": "secret"}
		}},
		{"header value", "headers.X", "control character 0xa", func(o *http.Options) {
			o.Headers = map[string]string{"X": "secret\n"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := http.DefaultOptions()
			o.Endpoints = []httpsink.Endpoint{{URL: "http://a:8080/in"}, {URL: "http://b:8080/in"}}
			c.change(o)
			err := o.Validate()
			wrong, ok := errors.AsType[*stream.OptionError](err)
			if !ok || wrong.Key != c.key || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("Validate() = %v, want an error of %s with %q and no secret", err, c.key, c.want)
			}
			if _, err := http.New(*o, connectortest.NewHost(t)); err == nil {
				t.Error("New took the options")
			}
		})
	}
}

func TestKeyExpression(t *testing.T) {
	o := http.DefaultOptions()
	o.IdempotencyKey = "ordre"
	_, err := o.Shape(stream.Schema{Fields: []stream.SchemaField{{Name: "order", Type: stream.TextType}}})
	wrong, ok := errors.AsType[*stream.OptionError](err)
	if !ok || wrong.Key != "idempotency_key" || wrong.Word != "ordre" || len(wrong.Known) != 1 {
		t.Errorf("Shape() = %#v, want the name that is not there and the one that is", err)
	}
	o.Endpoints, o.IdempotencyKey = []httpsink.Endpoint{{URL: "http://h/in"}}, "1 +"
	if _, err := http.New(*o, connectortest.NewHost(t)); err == nil {
		t.Error("New took an expression that ends too early")
	}
}

func TestLaneNames(t *testing.T) {
	o := http.DefaultOptions()
	o.Endpoints = []httpsink.Endpoint{
		{URL: "http://me:secret@a:8080"}, {URL: "https://b/in/x?token=secret"},
		{URL: "https://b/in/x?token=other"}, {URL: "http://[::1]:9/%2F"},
	}
	var got []string
	s := newSink(t, connectortest.NewHost(t), o)
	if err := s.Open(t.Context(), stream.SinkOptions{Lanes: func(all []stream.Lane) {
		for _, l := range all {
			got = append(got, l.Name)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := []string{"http://a:8080/", "https://b/in/x", "https://b/in/x (2)", "http://[::1]:9/%2F"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("lanes %q, want %q", got, want)
	}
}
