package httpserver_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
)

// TestRecordsBeyondMemory checks that a body is refused if its records take more memory than the
// source may use. In some cases, each record repeats the labels of its stream. In the others, the
// body has a record or an action for every few bytes.
func TestRecordsBeyondMemory(t *testing.T) {
	const most = "max_record: 1MiB, max_body: 4MiB, memory: 16MiB"
	label := strings.Repeat("x", 100<<10)
	entries := bytes.Repeat(field(nil, 2, field(nil, 2, []byte("a"))), 1000)
	values := strings.TrimSuffix(strings.Repeat(`["1","a"],`, 1000), ",")
	attribute := field(nil, 1, field(field(nil, 1, []byte("a")), 2, field(nil, 1, []byte(label))))
	records := bytes.Repeat(field(nil, 2, nil), 1000)
	for name, c := range map[string]struct {
		format, path, contentType string
		body                      []byte
	}{
		"labels": {"loki", "/loki/api/v1/push", "application/x-protobuf", snappy.Encode(nil,
			field(nil, 1, append(field(nil, 1, []byte(`{a="`+label+`"}`)), entries...)))},
		"labels in JSON": {"loki", "/loki/api/v1/push", "application/json", fmt.Appendf(nil,
			`{"streams":[{"stream":{"a":%q},"values":[%s]}]}`, label, values)},
		"resource": {"otlp", "/v1/logs", "application/x-protobuf",
			field(nil, 1, append(field(nil, 1, attribute), field(nil, 2, records)...))},
		"empty records": {"otlp", "/v1/logs", "application/x-protobuf",
			field(nil, 1, field(nil, 2, bytes.Repeat(field(nil, 2, nil), 100_000)))},
		"empty records in JSON": {"otlp", "/v1/logs", "application/json",
			[]byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}` +
				strings.Repeat(",{}", 100_000) + `]}]}]}`)},
		"actions": {"elasticsearch_bulk", "/_bulk", "application/x-ndjson",
			[]byte(strings.Repeat("{\"delete\":{}}\n", 100_000))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := run(t, "format: "+c.format+", "+most)
			s.want(s.post(c.path, bytes.NewReader(c.body), "Content-Type: "+c.contentType), 413,
				"take more than 16MiB (memory)")
			if held := s.server.Held(); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
		})
	}
}

// TestRecordsBeyondMaxRecord checks that max_record also counts the members that the source adds to
// a record.
func TestRecordsBeyondMaxRecord(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, c := range map[string]struct {
		format, path, body string
		status             int
		want               string
	}{
		"labels": {"loki", "/loki/api/v1/push",
			`{"streams":[{"stream":{"a":"` + long + `"},"values":[["1","b"]]}]}`, 400,
			"the record of entry 1 has 2092 bytes, at most 1024 (max_record)"},
		"escapes": {"loki", "/loki/api/v1/push",
			`{"streams":[{"stream":{},"values":[["1","` + strings.Repeat(`\n`, 600) + `"]]}]}`, 400,
			"the record of entry 1 has 1285 bytes"},
		"id": {"elasticsearch_bulk", "/_bulk",
			`{"index":{"_id":"` + long + "\"}}\n{\"a\":1}\n", 200,
			"the record of line 2 has 2016 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := run(t, "format: "+c.format+", max_record: 1KiB")
			s.want(s.post(c.path, strings.NewReader(c.body), "Content-Type: application/json"),
				c.status, c.want)
		})
	}
}
