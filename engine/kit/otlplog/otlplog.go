//penstock:pure

// Package otlplog converts OpenTelemetry logs to records. Each log record becomes a JSON object,
// which also has the attributes of its resource and its scope.
package otlplog

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// maxDepth bounds the nesting of messages.
const maxDepth = 64

// Fields returns the fields that every record has, with their types. The field body may have any
// type. A record may also have the fields flags and event_name.
func Fields() []stream.SchemaField {
	return []stream.SchemaField{
		{Name: "timestamp", Type: stream.TextType},
		{Name: "observed_timestamp", Type: stream.TextType},
		{Name: "severity", Type: stream.TextType},
		{Name: "severity_number", Type: stream.IntegerType},
		{Name: "body", Type: stream.AnyType},
		{Name: "attributes", Type: stream.JSONType},
		{Name: "resource", Type: stream.JSONType},
		{Name: "scope", Type: stream.JSONType},
		{Name: "trace_id", Type: stream.TextType},
		{Name: "span_id", Type: stream.TextType},
	}
}

// Protobuf decodes an export request in protobuf, and calls add with each record.
func Protobuf(request []byte, add func(record []byte) error) error {
	var data logs.LogsData // an ExportLogsServiceRequest has the same encoding
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(request,
		&data); err != nil {
		return fmt.Errorf("the body is not an ExportLogsServiceRequest in protobuf: %w", err)
	}
	return Each(&data, add)
}

// JSON decodes an export request in JSON, and calls add with each record.
func JSON(request []byte, add func(record []byte) error) error {
	var data logs.LogsData
	o := protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxDepth}
	if err := o.Unmarshal(request, &data); err != nil {
		return fmt.Errorf("the body is not an ExportLogsServiceRequest in JSON: %w", err)
	}
	for _, r := range data.GetResourceLogs() {
		for _, s := range r.GetScopeLogs() {
			for _, l := range s.GetLogRecords() {
				l.TraceId, l.SpanId = hexID(l.GetTraceId()), hexID(l.GetSpanId())
			}
		}
	}
	return Each(&data, add)
}

// hexID returns the bytes of an id. OTLP/JSON writes an id in hexadecimal, but the protobuf package
// has decoded it as base64. hexID first reverses this by encoding it as base64, and then decodes
// the hexadecimal text.
func hexID(decoded []byte) []byte {
	if id, err := hex.DecodeString(base64.StdEncoding.EncodeToString(decoded)); err == nil {
		return id
	}
	return decoded
}

// Each calls add with each record as a JSON object, until add returns an error. add must not keep
// record, because its memory is used for the next record.
func Each(data *logs.LogsData, add func(record []byte) error) error {
	var dst []byte
	for _, r := range data.GetResourceLogs() {
		resource := appendAttributes(nil, r.GetResource().GetAttributes())
		for _, s := range r.GetScopeLogs() {
			scope := appendScope(nil, s.GetScope())
			for _, l := range s.GetLogRecords() {
				dst = appendRecord(dst[:0], l, resource, scope)
				if err := add(dst); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func appendRecord(dst []byte, l *logs.LogRecord, resource, scope []byte) []byte {
	at := cmp.Or(l.GetTimeUnixNano(), l.GetObservedTimeUnixNano())
	dst = appendTime(append(dst, `{"timestamp":`...), at)
	dst = appendTime(append(dst, `,"observed_timestamp":`...), l.GetObservedTimeUnixNano())
	dst = ndjson.AppendString(append(dst, `,"severity":`...), severity(l))
	dst = strconv.AppendInt(append(dst, `,"severity_number":`...), int64(l.GetSeverityNumber()), 10)
	dst = appendAny(append(dst, `,"body":`...), l.GetBody())
	dst = appendAttributes(append(dst, `,"attributes":`...), l.GetAttributes())
	dst = append(append(dst, `,"resource":`...), resource...)
	dst = append(append(dst, `,"scope":`...), scope...)
	dst = appendHex(append(dst, `,"trace_id":`...), l.GetTraceId())
	dst = appendHex(append(dst, `,"span_id":`...), l.GetSpanId())
	if flags := l.GetFlags(); flags != 0 {
		dst = strconv.AppendUint(append(dst, `,"flags":`...), uint64(flags), 10)
	}
	if name := l.GetEventName(); name != "" {
		dst = ndjson.AppendString(append(dst, `,"event_name":`...), name)
	}
	return append(dst, '}')
}

// severity returns the severity text of a log record. If this text is empty, it returns the name of
// the severity number, such as INFO2.
func severity(l *logs.LogRecord) string {
	if l.GetSeverityText() != "" || l.GetSeverityNumber() == 0 {
		return l.GetSeverityText()
	}
	return strings.TrimPrefix(l.GetSeverityNumber().String(), "SEVERITY_NUMBER_")
}

// appendTime appends a time as text. It appends null if nanos is 0, which means that the time is
// unknown, or if nanos is too large.
func appendTime(dst []byte, nanos uint64) []byte {
	if nanos == 0 || nanos > math.MaxInt64 {
		return append(dst, "null"...)
	}
	dst = time.Unix(0, int64(nanos)).UTC().AppendFormat(append(dst, '"'), time.RFC3339Nano)
	return append(dst, '"')
}

func appendHex(dst, id []byte) []byte {
	if len(id) == 0 {
		return append(dst, "null"...)
	}
	return append(hex.AppendEncode(append(dst, '"'), id), '"')
}

func appendScope(dst []byte, s *common.InstrumentationScope) []byte {
	dst = ndjson.AppendString(append(dst, `{"name":`...), s.GetName())
	dst = ndjson.AppendString(append(dst, `,"version":`...), s.GetVersion())
	return append(appendAttributes(append(dst, `,"attributes":`...), s.GetAttributes()), '}')
}

func appendAttributes(dst []byte, attributes []*common.KeyValue) []byte {
	dst = append(dst, '{')
	for i, a := range attributes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendAny(append(ndjson.AppendString(dst, a.GetKey()), ':'), a.GetValue())
	}
	return append(dst, '}')
}

// appendAny appends a value of any type as JSON. The value must not be nested deeper than maxDepth.
func appendAny(dst []byte, v *common.AnyValue) []byte {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return ndjson.AppendString(dst, v.StringValue)
	case *common.AnyValue_BoolValue:
		return strconv.AppendBool(dst, v.BoolValue)
	case *common.AnyValue_IntValue:
		return strconv.AppendInt(dst, v.IntValue, 10)
	case *common.AnyValue_DoubleValue:
		if math.IsNaN(v.DoubleValue) || math.IsInf(v.DoubleValue, 0) {
			return ndjson.AppendString(dst, strconv.FormatFloat(v.DoubleValue, 'g', -1, 64))
		}
		return strconv.AppendFloat(dst, v.DoubleValue, 'g', -1, 64)
	case *common.AnyValue_BytesValue:
		return ndjson.AppendString(dst, base64.StdEncoding.EncodeToString(v.BytesValue))
	case *common.AnyValue_KvlistValue:
		return appendAttributes(dst, v.KvlistValue.GetValues())
	case *common.AnyValue_ArrayValue:
		dst = append(dst, '[')
		for i, item := range v.ArrayValue.GetValues() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendAny(dst, item)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}
