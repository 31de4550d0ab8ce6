package otlplog

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// nested returns message in nested fields with the given numbers, the innermost last.
func nested(message []byte, numbers ...protowire.Number) []byte {
	for _, n := range slices.Backward(numbers) {
		message = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), message)
	}
	return message
}

// held returns the bytes that decode leaves in use.
func held(t *testing.T, decode func(*logs.LogsData) error) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one may still see the values of the caller
	runtime.ReadMemStats(&before)
	data := new(logs.LogsData)
	if err := decode(data); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(data)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// asJSON converts a request.
func asJSON(t *testing.T, request []byte) []byte {
	t.Helper()
	data := new(logs.LogsData)
	if err := proto.Unmarshal(request, data); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestMemory decodes requests that consist of the smallest messages. The estimates must not be
// below the memory that decoding takes, and not far above it.
func TestMemory(t *testing.T) {
	const count = 20_000
	many := func(message string) []byte { return []byte(strings.Repeat(message, count)) }
	for name, request := range map[string][]byte{
		"resources":  many(string(nested(nil, 1))),
		"scopes":     nested(many(string(nested(nil, 2))), 1),
		"records":    nested(many(string(nested(nil, 2))), 1, 2),
		"attributes": nested(many(string(nested(nil, 6))), 1, 2, 2),
		"values":     nested(many(string(nested(nil, 1))), 1, 2, 2, 5, 5),
		"pairs":      nested(many(string(nested(nested(nil, 2), 1))), 1, 2, 2, 5, 6),
	} {
		t.Run(name, func(t *testing.T) {
			got := held(t, func(data *logs.LogsData) error {
				return proto.Unmarshal(request, data)
			})
			if want := ProtobufMemory(request); got > want || got < want/4 {
				t.Errorf("protobuf takes %d bytes, the estimate is %d", got, want)
			}
			text := asJSON(t, request)
			got = held(t, func(data *logs.LogsData) error {
				return protojson.Unmarshal(text, data)
			})
			if want := JSONMemory(text); got > want || got < want/6 {
				t.Errorf("JSON takes %d bytes, the estimate is %d", got, want)
			}
		})
	}
}

// TestMemoryOfBadRequests checks that the estimate terminates for requests that are not valid
// messages.
func TestMemoryOfBadRequests(t *testing.T) {
	deep := nested(nil, 1, 2, 2, 5)
	for range 1000 {
		deep = nested(deep, 5, 1)
	}
	short := nested([]byte("x"), 1, 2)
	for _, request := range [][]byte{nil, []byte("garbage"), {0x0a, 0xff}, short, deep} {
		if got := ProtobufMemory(request); got < int64(len(request)) {
			t.Errorf("%.20q: %d bytes", request, got)
		}
	}
}
