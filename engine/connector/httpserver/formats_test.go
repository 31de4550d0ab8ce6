package httpserver_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

func TestNDJSON(t *testing.T) {
	s := run(t, "format: ndjson, path: /in")
	s.want(s.post("/in", strings.NewReader("{\"a\":1.50,\"b\":\"x\\ny\"}\r\n\n "+
		"{\"a\":null,\"c\":[1,{\"d\":2}]}")), 200, `{"records":2}`,
		`{"a":1.50,"b":"x\ny"}`, `{"a":null,"c":[1,{"d":2}]}`)
	before := s.records()
	for body, want := range map[string]string{
		"{\"a\":1}\nplain":   "line 2 is not a JSON object",
		"{\"a\":1}\n[1]":     "line 2 is not a JSON object",
		"{\"a\":01}":         "line 1 is not a JSON object",
		"{\"a\":\"\xff\"}":   "not UTF-8",
		"{\"a\":1}{\"b\":2}": "text after the object",
	} {
		s.want(s.post("/in", strings.NewReader(body)), 400, want, before...)
	}
	if a := s.post("/elsewhere", strings.NewReader("{}")); a.status != 404 {
		t.Errorf("another path: %d", a.status)
	}
}

func TestJSONArray(t *testing.T) {
	s := run(t, "format: json_array")
	s.want(s.post("/", strings.NewReader(" [ {\"a\":\"],[\\\"\"} ,\n{\"b\":\n[1,2]}\n] ")), 200, `{"records":2}`,
		`{"a":"],[\""}`, `{"b":[1,2]}`)
	s.want(s.post("/", strings.NewReader(`{"c":3}`)), 200, `{"records":1}`, `{"a":"],[\""}`, `{"b":[1,2]}`, `{"c":3}`)
	s.want(s.post("/", strings.NewReader(`[]`)), 200, `{"records":0}`, s.records()...)
	for body, want := range map[string]string{
		`[{"a":1},2]`: "element 2 is not a JSON object", `[{"a":1}`: "not closed", `[{"a":1}] x`: "behind the array",
		`[{"a":1},]`: "element 2", `{`: "element 1 is not", `[{"a":1}}`: "behind the array",
	} {
		s.want(s.post("/", strings.NewReader(body)), 400, want, s.records()...)
	}
}

func TestBulk(t *testing.T) {
	s := run(t, "format: elasticsearch_bulk")
	body := `{"index":{"_index":"logs","_id":"1"}}
{"a":1}
{"create":{"_index":"logs"}}
{}
{"delete":{"_index":"logs","_id":"9"}}
{"update":{"_index":"logs","_id":"9"}}
{"doc":{}}
{"index":{}}
not json
{"create":{"_index":"x"}}
{"_index":"own","b":2}
`
	a := s.post("/_bulk", strings.NewReader(body), "Content-Type: application/x-ndjson")
	s.want(a, 200, `"errors":true`, `{"_index":"logs","_id":"1","a":1}`, `{"_index":"logs"}`, `{"_index":"own","b":2}`)
	var answer struct {
		Items []map[string]struct {
			Status int
			Error  struct{ Reason string }
		}
	}
	if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range answer.Items {
		for action, result := range item {
			got = append(got, fmt.Sprint(action, result.Status))
		}
	}
	if want := []string{"index201", "create201", "delete400", "update400", "index400",
		"create201"}; !slices.Equal(got, want) {
		t.Errorf("items %v, want %v", got, want)
	}
	if a.header.Get("X-Elastic-Product") != "Elasticsearch" {
		t.Error("clients of Elasticsearch would refuse the answer")
	}
	s.want(s.post("/other/_bulk", strings.NewReader("{\"a\":1}\n{}\n")), 400, "line 1 is not an action", s.records()...)
	s.want(s.post("/_bulk", strings.NewReader("{\"index\":{}}\n")), 400, "the document of action "+
		"index is missing", s.records()...)
}

// TestBulkNumericID checks that an _id that is a number is kept, as Elasticsearch keeps it. An _id
// that cannot be a text fails the request, because it would be lost otherwise.
func TestBulkNumericID(t *testing.T) {
	s := run(t, "format: elasticsearch_bulk")
	want := []string{`{"_id":"17","a":1}`, `{"a":2}`}
	s.want(s.post("/_bulk", strings.NewReader(`{"index":{"_id":17}}
{"a":1}
{"create":{"_id":null}}
{"a":2}
`)), 200, `{"index":{"_index":"","_id":"17","result"`, want...)
	s.want(s.post("/_bulk", strings.NewReader("{\"index\":{\"_id\":[1]}}\n{}\n")), 400,
		"line 1 is not an action: its _id is not a text", want...)
}

// TestBulkIndex checks that an action without an index gets the index of the path. A repeated
// request with the same key and body, but another index, must be refused like one with another
// body.
func TestBulkIndex(t *testing.T) {
	s := run(t, "format: elasticsearch_bulk")
	body := `{"index":{"_id":"1"}}
{"a":1}
{"create":{"_index":"own"}}
{"a":2}
`
	want := []string{`{"_index":"own","a":2}`, `{"_index":"x\"y","_id":"1","a":1}`}
	a := s.post("/x%22y/_bulk", strings.NewReader(body), "Idempotency-Key: k")
	s.want(a, 200, `{"index":{"_index":"x\"y","_id":"1"`, want...)
	a = s.post("/x%22y/_bulk", strings.NewReader(body), "Idempotency-Key: k")
	s.want(a, 200, `"errors":false`, want...)
	a = s.post("/z/_bulk", strings.NewReader(body), "Idempotency-Key: k")
	s.want(a, 422, "another body", want...)
	s.want(s.post("/"+strings.Repeat("x", 256)+"/_bulk", strings.NewReader(body)), 400,
		"the index has 256 bytes, at most 255", want...)
}

func TestLokiJSON(t *testing.T) {
	s := run(t, "format: loki")
	body := `{"streams":[{"stream":{"job":"a"},"values":[["1700000000000000001","line \"one\""],["1700000000000000002","two",{"m":"1"}]]}]}`
	one := `{"timestamp":"2023-11-14T22:13:20.000000001Z","message":"line \"one\"","labels":{"job":"a"},"metadata":{}}`
	two := `{"timestamp":"2023-11-14T22:13:20.000000002Z","message":"two","labels":{"job":"a"},"metadata":{"m":"1"}}`
	s.want(s.post("/loki/api/v1/push", strings.NewReader(body), "Content-Type: application/json"), 204, "", one, two)
	for body, want := range map[string]string{
		`{}`: `no array "streams"`, `{"streams":[{}]}`: "stream 1 needs",
		`{"streams":[{"stream":{},"values":[["x","y"]]}]}`: "entry 1 is not",
		`{"streams":[{"stream":{},"values":[["1",2]]}]}`:   "entry 1 is not",
	} {
		s.want(s.post("/loki/api/v1/push", strings.NewReader(body),
			"Content-Type: application/json"), 400, want, one, two)
	}
}

// field appends a length-delimited field.
func field(dst []byte, n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), value)
}

func TestLokiProtobuf(t *testing.T) {
	s := run(t, "format: loki")
	stamp := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1700000000)
	pair := field(field(nil, 1, []byte("trace")), 2, []byte("t1"))
	entry := field(field(field(nil, 1, stamp), 2, []byte("hello")), 3, pair)
	one := field(field(nil, 1, []byte(`{job="a\"b", host="h"}`)), 2, entry)
	body := snappy.Encode(nil, field(nil, 1, one))
	s.want(s.post("/loki/api/v1/push", bytes.NewReader(body), "Content-Type: application/x-protobuf"), 204, "",
		`{"timestamp":"2023-11-14T22:13:20Z","message":"hello","labels":{"job":"a\"b","host":"h"},"metadata":{"trace":"t1"}}`)
	s.want(s.post("/loki/api/v1/push", strings.NewReader("\xff\xff\xff\xff\x0f")), 413, "max_body", s.records()...)
	s.want(s.post("/loki/api/v1/push", strings.NewReader("\x03abc")), 400, "snappy", s.records()...)
	bad := snappy.Encode(nil, field(nil, 1, field(nil, 1, []byte("job"))))
	s.want(s.post("/loki/api/v1/push", bytes.NewReader(bad)), 400, "do not begin with {", s.records()...)
}

func text(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

func TestOTLP(t *testing.T) {
	s := run(t, "format: otlp")
	data := &logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{{Key: "service.name", Value: text("shop")}}},
		ScopeLogs: []*logs.ScopeLogs{{
			Scope: &common.InstrumentationScope{Name: "lib", Version: "1"},
			LogRecords: []*logs.LogRecord{{
				TimeUnixNano: 1700000000000000001, SeverityNumber: 9, Body: text("hello"),
				Attributes: []*common.KeyValue{{Key: "n",
					Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: 7}}}},
				TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"),
			}},
		}},
	}}}
	body, err := proto.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	record := func(observed string) string {
		return `{"timestamp":"2023-11-14T22:13:20.000000001Z","observed_timestamp":` + observed +
			`,"severity":"INFO","severity_number":9,` +
			`"body":"hello","attributes":{"n":7},"resource":{"service.name":"shop"},` +
			`"scope":{"name":"lib","version":"1","attributes":{}},"trace_id":"30313233343536373839616263646566",` +
			`"span_id":"3031323334353637"}`
	}
	s.want(s.post("/v1/logs", bytes.NewReader(body), "Content-Type: application/x-protobuf"), 200, "", record("null"))
	asJSON := `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeLogs":[{"scope":` +
		`{"name":"lib","version":"1"},"logRecords":[{"timeUnixNano":"1700000000000000001",` +
		`"severityNumber":9,"body":{"stringValue":"hello"},` +
		`"attributes":[{"key":"n","value":{"intValue":"7"}}],"traceId":"30313233343536373839616263646566",` +
		`"spanId":"3031323334353637","unknown":1}]}]}]}`
	s.want(s.post("/v1/logs", strings.NewReader(asJSON), "Content-Type: application/json"), 200,
		"{}", record("null"), record("null"))
	s.want(s.post("/v1/logs", strings.NewReader("garbage")), 400, "ExportLogsServiceRequest in "+
		"protobuf", s.records()...)
	s.want(s.post("/v1/logs", strings.NewReader("[1]"), "Content-Type: application/json"), 400,
		"in JSON", s.records()...)
	deep := text("x")
	for range 100 {
		deep = &common.AnyValue{
			Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{Values: []*common.AnyValue{deep}}}}
	}
	data.ResourceLogs[0].ScopeLogs[0].LogRecords[0].Body = deep
	if body, err = proto.Marshal(data); err != nil {
		t.Fatal(err)
	}
	s.want(s.post("/v1/logs", bytes.NewReader(body)), 400, "ExportLogsServiceRequest", s.records()...)
}

func gzipped(t *testing.T, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	s := run(t, "format: lines, max_body: 4MiB, memory: 16MiB")
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var big []byte
	for i := range 200_000 {
		big = fmt.Appendf(big, "%x\n", i*7919)
	}
	count := bytes.Count(big, []byte("\n"))
	for encoding, body := range map[string][]byte{
		"gzip": gzipped(t, big), "zstd": enc.EncodeAll(big, nil), "identity": big,
	} {
		a := s.post("/", bytes.NewReader(body), "Content-Encoding: "+encoding)
		if a.status != 200 || a.body != fmt.Sprintf("{\"records\":%d}\n", count) {
			t.Errorf("%s: %d %s", encoding, a.status, a.body)
		}
	}
	chunked := s.post("/", io.MultiReader(bytes.NewReader(big))) // of unknown length
	if chunked.status != 200 {
		t.Errorf("chunked: %d %s", chunked.status, chunked.body)
	}
	if n := len(s.records()); n != 4*count {
		t.Errorf("%d records arrived, want %d", n, 4*count)
	}
	zeros := make([]byte, 3<<20)
	truncated := gzipped(t, big)
	for _, c := range []struct {
		encoding string
		body     []byte
		status   int
		want     string
	}{
		{"gzip", []byte("no gzip at all"), 400, "cannot be decompressed as gzip"},
		{"gzip", truncated[:len(truncated)/2], 400, "cannot be decompressed as gzip"},
		{"zstd", []byte("no zstd at all"), 400, "cannot be decompressed as zstd"},
		{"gzip", gzipped(t, make([]byte, 20<<20)), 413, "max_"},
		{"zstd", enc.EncodeAll(make([]byte, 20<<20), nil), 413, "max_"},
		{"gzip", gzipped(t, zeros), 413, "max_ratio"},
		{"snappy", binary.AppendUvarint(nil, 5<<20), 413, "max_body"},
		{"snappy", append(binary.AppendUvarint(nil, 3<<20), "short"...), 413, "max_ratio"},
		{"snappy", append(binary.AppendUvarint(nil, 1<<19), "short"...), 400,
			"cannot be decompressed as snappy"},
		{"br", big, 415, "not supported"},
		{"", make([]byte, 5<<20), 413, "max_body"},
		{"", append(bytes.Repeat([]byte("x"), 2<<20), '\n'), 400, "line 1 has 2097152 bytes, at " +
			"most 1048576 (max_record)"},
	} {
		a, err := s.try("/", bytes.NewReader(c.body), "Content-Encoding: "+c.encoding)
		if err == nil && (a.status != c.status || !strings.Contains(a.body, c.want)) {
			t.Errorf("%s %q: %d %s, want %d %s", c.encoding, c.body[:10], a.status, a.body, c.status, c.want)
		}
	}
	if held := s.server.Held(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// TestRudeClients checks that connections that send nothing, half a header, a huge header, half a
// body, no HTTP or a malformed chunk are closed. The source serves other clients meanwhile.
func TestRudeClients(t *testing.T) {
	t.Parallel()
	s := run(t, "format: lines, connections: 20, header_timeout: 1s, deadline: 3s")
	addr := strings.TrimPrefix(s.url, "http://")
	var conns []net.Conn
	for i := range 40 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		_, _ = io.WriteString(c, []string{
			"", "POST / HT", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf",
			hugeHeader, "\x16\x03\x01\x00\xff no HTTP\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		}[i%6]) // fails if the connection was closed to make room for others
	}
	if a := s.post("/", strings.NewReader("polite")); a.status != 200 {
		t.Errorf("beside rude clients: %d %s", a.status, a.body)
	}
	for i, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		answer, err := io.ReadAll(c)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("client %d was not ended; it got %q", i, answer)
		}
	}
	if got := s.records(); !slices.Equal(got, []string{`{"message":"polite"}`}) {
		t.Errorf("arrived %q", got)
	}
	if held := s.server.Held(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

var hugeHeader = "POST / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\n"

// TestMalformedRequests checks the responses to requests that net/http refuses.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	s := run(t, "format: lines")
	for text, want := range map[string]string{
		hugeHeader:        "HTTP/1.1 431 ",
		"no HTTP\r\n\r\n": "HTTP/1.1 400 ",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n":         "HTTP/1.1 400 ",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab": "HTTP/1.1 400 ",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, text) // the source may respond before it has read all of it
		answer := make([]byte, len(want))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != want {
			t.Errorf("%.60q: %q, %v; want %q", text, answer, err, want)
		}
		_ = conn.Close()
	}
	s.want(s.post("/", strings.NewReader("polite")), 200, "", `{"message":"polite"}`)
}

func TestBadOptions(t *testing.T) {
	for options, want := range map[string]string{
		"listen: 127.0.0.1":        "is not HOST:PORT",
		"listen: '127.0.0.1:http'": "is not a port",
		"listen: 'example.com:80'": "is not an IP address",
		"listen: '0.0.0.0:8080'": "can be reached from other " +
			"machines; set a token, or tls.client_ca",
		"listen: ':8080', token: long-enough":                        "set tls.cert and tls.key",
		"listen: '127.0.0.1:1', format: xml":                         `there is no "xml"`,
		"listen: '127.0.0.1:1', ack: soon":                           `there is no "soon"`,
		"listen: '127.0.0.1:1', token: short":                        "has fewer than 8 characters",
		"listen: '127.0.0.1:1', tokens: {a: short}":                  "has fewer than 8 characters",
		"listen: '127.0.0.1:1', path: in":                            "want a path such as /in",
		"listen: '127.0.0.1:1', deadline: 0s":                        "want 100ms to 1h",
		"listen: '127.0.0.1:1', memory: 1MiB":                        "want 8MiB",
		"listen: '127.0.0.1:1', max_body: 1GiB":                      "half of memory",
		"listen: '127.0.0.1:1', max_record: 1GiB":                    "max_body",
		"listen: '127.0.0.1:1', connections: 0":                      "want 1 to 100000",
		"listen: '127.0.0.1:1', max_ratio: 0":                        "want 1 or more",
		"listen: '127.0.0.1:1', max_header: 1B":                      "want 1KiB to 1MiB",
		"listen: '127.0.0.1:1', tls: {key: x}":                       "tls.cert",
		"listen: '127.0.0.1:1', tls: {cert: /nonexistent, key: /no}": "no such file",
		"format: lines": "listen",
	} {
		cfg := "pipelines: {p: {source: {http_server: {" + options + "}}, sink: drop}}"
		_, err := engine.Parse([]byte(cfg), all.Components()...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %q", options, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "short") && strings.Contains(options, "short") {
			t.Errorf("the message shows the token: %v", err)
		}
	}
	two := `pipelines:
  a: { source: { http_server: { listen: "127.0.0.1:8080" } }, sink: drop }
  b: { source: { http_server: { listen: "127.0.0.1:8080" } }, sink: drop }
`
	if _, err := engine.Parse([]byte(two), all.Components()...); err == nil ||
		!strings.Contains(err.Error(), "tcp port 8080 is used by") {
		t.Errorf("two listeners on one port: %v", err)
	}
}
