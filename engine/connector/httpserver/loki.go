//penstock:pure

package httpserver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// lokiFields lists the fields of a record from Loki's push API.
var lokiFields = slices.Concat(
	schemaOf(stream.TextType, "timestamp", "message"), schemaOf(stream.JSONType, "labels", "metadata"),
)

// decodeLoki decodes a request of Loki's push API. The content type tells whether the body is JSON
// or protobuf. A protobuf body must have been decompressed from snappy.
func decodeLoki(contentType string, body []byte, maxRecord int, room room) (decoded, error) {
	l := lokiDecoder{most: maxRecord, room: room}
	var err error
	if strings.HasPrefix(contentType, typeJSON) {
		err = l.json(body)
	} else {
		err = fields(body, func(n protowire.Number, v value) error {
			if n != 1 {
				return nil
			}
			return l.stream(v.bytes)
		})
	}
	l.reply = reply{status: 204}
	return l.decoded, err
}

type lokiDecoder struct {
	decoded
	most    int
	room    room
	entries int
	record  []byte
}

// add adds a record. labels and metadata are JSON objects.
func (l *lokiDecoder) add(at time.Time, line string, labels, metadata []byte) error {
	l.entries++
	if len(line) > l.most {
		return tooLong("entry", l.entries, len(line), l.most)
	}
	l.record = append(l.record[:0], `{"timestamp":"`...)
	l.record = at.UTC().AppendFormat(l.record, time.RFC3339Nano)
	l.record = ndjson.AppendString(append(l.record, `","message":`...), line)
	l.record = append(append(l.record, `,"labels":`...), labels...)
	l.record = append(append(append(l.record, `,"metadata":`...), metadata...), '}')
	if len(l.record) > l.most {
		return tooLong("the record of entry", l.entries, len(l.record), l.most)
	}
	return l.decoded.add(l.record, 0, l.room)
}

// value is a field of a protobuf message.
type value struct {
	bytes  []byte // of a length-delimited field
	number uint64 // of a varint field
}

// fields calls f with each field of a protobuf message.
func fields(message []byte, f func(protowire.Number, value) error) error {
	whole := len(message)
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return wrongProtobuf(whole-len(message), n)
		}
		message = message[n:]
		var v value
		switch kind {
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return wrongProtobuf(whole-len(message), n)
		}
		message = message[n:]
		if err := f(number, v); err != nil {
			return err
		}
	}
	return nil
}

func wrongProtobuf(at, code int) error {
	return fmt.Errorf("the body is not a push request in protobuf: %w, at byte %d of a message",
		protowire.ParseError(code), at+1)
}

// stream decodes the message StreamAdapter: labels as text, and entries. It reads the labels first,
// because every record needs them. In the message, they may follow the entries.
func (l *lokiDecoder) stream(message []byte) error {
	labels := []byte("{}")
	err := fields(message, func(n protowire.Number, v value) (err error) {
		if n == 1 {
			labels, err = parseLabels(string(v.bytes))
		}
		return err
	})
	if err != nil {
		return err
	}
	return fields(message, func(n protowire.Number, v value) error {
		if n == 2 {
			return l.entry(v.bytes, labels)
		}
		return nil
	})
}

// entry decodes an EntryAdapter: time, line, structured metadata.
func (l *lokiDecoder) entry(message, labels []byte) error {
	var at time.Time
	var line string
	metadata := []byte{'{'}
	err := fields(message, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			at, err = parseTimestamp(v.bytes)
		case 2:
			line = string(v.bytes)
		case 3:
			metadata, err = appendPair(metadata, v.bytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.add(at, line, labels, append(metadata, '}'))
}

func parseTimestamp(message []byte) (time.Time, error) {
	var seconds, nanos int64
	err := fields(message, func(n protowire.Number, v value) error {
		switch n {
		case 1:
			seconds = int64(v.number)
		case 2:
			nanos = int64(int32(v.number))
		}
		return nil
	})
	return time.Unix(seconds, nanos), err
}

// appendPair appends a member to a JSON object without its closing brace. The name and value are
// those in a protobuf message.
func appendPair(dst, message []byte) ([]byte, error) {
	var name, text []byte
	err := fields(message, func(n protowire.Number, v value) error {
		switch n {
		case 1:
			name = v.bytes
		case 2:
			text = v.bytes
		}
		return nil
	})
	return appendMember(dst, string(name), string(text)), err
}

// appendMember appends a member to a JSON object without its closing brace.
func appendMember(dst []byte, name, text string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return ndjson.AppendString(append(ndjson.AppendString(dst, name), ':'), text)
}

// parseLabels converts labels in Prometheus syntax, such as {job="a", host="b"}, to a JSON object.
func parseLabels(text string) ([]byte, error) {
	fail := func(what string) ([]byte, error) {
		return nil, fmt.Errorf("labels %.60q: %s", text, what)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "{")
	if !ok {
		return fail("do not begin with {")
	}
	out := []byte{'{'}
	for {
		rest = strings.TrimLeft(rest, " ,")
		if rest == "}" {
			return append(out, '}'), nil
		}
		name, value, ok := strings.Cut(rest, "=")
		if !ok {
			return fail("a name without a value, or no } at the end")
		}
		quoted, err := strconv.QuotedPrefix(strings.TrimLeft(value, " "))
		if err != nil {
			return fail("a value without quotes")
		}
		plain, err := strconv.Unquote(quoted)
		if err != nil {
			return fail("a value that cannot be unquoted")
		}
		out = appendMember(out, strings.TrimSpace(name), plain)
		rest = strings.TrimLeft(value, " ")[len(quoted):]
	}
}

// json decodes {"streams":[{"stream":{labels},"values":[["nanoseconds","line",{metadata}]]}]}.
func (l *lokiDecoder) json(body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("the body is not UTF-8")
	}
	var s json.Scanner
	if what, at := scanObject(&s, body); what != "" {
		return fmt.Errorf("the body is not a JSON object: %s, at byte %d", what, at+1)
	}
	streams, ok := s.Member(body, "streams")
	if !ok || !isArray(body, streams) {
		return errors.New(`the body has no array "streams"`)
	}
	number := 0
	return eachElement(raw(body, streams), func(one []byte) error {
		number++
		labels, ok := s.Member(one, "stream")
		values, has := s.Member(one, "values")
		if !ok || !has || labels.Kind != stream.JSON || one[labels.Off] != '{' || !isArray(one, values) {
			return fmt.Errorf(`stream %d needs an object "stream" and an array "values"`, number)
		}
		object := oneLine(raw(one, labels))
		return eachElement(raw(one, values), func(entry []byte) error {
			return l.jsonEntry(&s, entry, object)
		})
	})
}

func raw(data []byte, v json.Value) []byte { return data[v.Off : v.Off+v.Len] }

func isArray(data []byte, v json.Value) bool { return v.Kind == stream.JSON && data[v.Off] == '[' }

// jsonEntry decodes ["nanoseconds","line"] or ["nanoseconds","line",{metadata}].
func (l *lokiDecoder) jsonEntry(s *json.Scanner, entry, labels []byte) error {
	fail := func() error {
		return fmt.Errorf(`entry %d is not ["NANOSECONDS","LINE"] or ["NANOSECONDS","LINE",{METADATA}]`, l.entries+1)
	}
	var parts [][]byte
	if len(entry) == 0 || entry[0] != '[' {
		return fail()
	}
	err := eachElement(entry, func(part []byte) error {
		parts = append(parts, part)
		return nil
	})
	if err != nil || len(parts) < 2 || len(parts) > 3 {
		return fail()
	}
	texts := make([]string, 2)
	for i := range texts {
		p := parts[i]
		if len(p) < 2 || p[0] != '"' {
			return fail()
		}
		texts[i] = string(json.AppendUnescaped(nil, p[1:len(p)-1]))
	}
	nanos, err := strconv.ParseInt(texts[0], 10, 64)
	if err != nil {
		return fail()
	}
	metadata := []byte("{}")
	if len(parts) == 3 {
		if what, _ := scanObject(s, parts[2]); what != "" {
			return fail()
		}
		metadata = oneLine(parts[2])
	}
	return l.add(time.Unix(0, nanos), texts[1], labels, metadata)
}
