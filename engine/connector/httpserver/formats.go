//penstock:pure

package httpserver

import (
	"bytes"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

// reply is the response to a request.
type reply struct {
	status      int
	contentType string
	body        []byte
}

const (
	typeJSON     = "application/json"
	typeProtobuf = "application/x-protobuf"
)

// decoded has the records in a body, and the response to send. The response is sent when all routes
// have settled the records (delivered, dead-lettered or dropped them) or, with `ack: buffered`,
// when they are stored.
type decoded struct {
	records intake.Records
	reply   reply
}

// decoder converts a body to records, which may refer to the memory of body. An error means that
// the body is invalid, unless the function room has returned it.
type decoder func(contentType string, body []byte, maxRecord int, room room) (decoded, error)

// room reserves memory for a decoder. bytes is the total that the decoder uses in addition to the
// body, including the bytes of earlier calls. A decoder calls room before it uses much more memory
// than the body, for example for labels that each record repeats.
type room func(bytes int64) error

// add adds a record. Before that, it reserves memory for all records so far, and for other bytes
// that the decoder uses in addition to the body and the records.
func (d *decoded) add(record []byte, other int64, room room) error {
	size := int64(d.records.Size()+len(record)) + int64(d.records.Len()+1)*intake.RecordOverhead
	if err := room(other + size); err != nil {
		return err
	}
	d.records.Add(record)
	return nil
}

var decoders = map[string]decoder{
	Lines: decodeLines, NDJSON: decodeNDJSON, JSONArray: decodeArray,
	Bulk: bulkInto(""), Loki: decodeLoki, OTLP: decodeOTLP,
}

// replyRecords returns the response to a request with n records, for formats that do not define a
// response.
func replyRecords(n int) reply {
	return reply{200, typeJSON, fmt.Appendf(nil, "{\"records\":%d}\n", n)}
}

// tooLong returns the error of a record larger than max_record.
func tooLong(what string, number, size, most int) error {
	return fmt.Errorf("%s %d has %d bytes, at most %d (max_record)", what, number, size, most)
}

// decodeLines returns each line as a record.
func decodeLines(_ string, body []byte, maxRecord int, _ room) (decoded, error) {
	if n := len(body); n > 0 && body[n-1] != '\n' {
		body = append(body, '\n')
	}
	if err := checkLines(body, maxRecord); err != nil {
		return decoded{}, err
	}
	d := decoded{records: intake.Lines(body)}
	d.reply = replyRecords(d.records.Len())
	return d, nil
}

// checkLines returns an error if a line is longer than the limit (most). To skip many short lines
// at once, it looks for the last line end among the next most+1 bytes. If there is none, the line
// is too long. Otherwise checkLines continues after this line end.
func checkLines(body []byte, most int) error {
	for at := 0; len(body)-at > most; {
		i := bytes.LastIndexByte(body[at:at+most+1], '\n')
		if i < 0 {
			end := bytes.IndexByte(body[at:], '\n')
			return tooLong("line", bytes.Count(body[:at], newline)+1, end, most)
		}
		at += i + 1
	}
	return nil
}

var newline = []byte{'\n'}

// decodeNDJSON reads one JSON object per line. It skips blank lines.
func decodeNDJSON(_ string, body []byte, maxRecord int, _ room) (decoded, error) {
	var d decoded
	var s json.Scanner
	number := 0
	for line := range bytes.SplitSeq(body, newline) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(line) > maxRecord {
			return decoded{}, tooLong("line", number, len(line), maxRecord)
		}
		if what, at := scanObject(&s, line); what != "" {
			return decoded{}, fmt.Errorf("line %d is not a JSON object: %s, at byte %d", number, what, at+1)
		}
		d.records.Add(line)
	}
	d.reply = replyRecords(d.records.Len())
	return d, nil
}

// scanObject checks a JSON object. It returns the first mistake and its position in data, or "".
func scanObject(s *json.Scanner, data []byte) (what string, at int) {
	for s.Start(data, 0, len(data)); s.Next(); {
		continue
	}
	return s.Wrong()
}

// decodeArray reads the objects of an array, or a single object.
func decodeArray(_ string, body []byte, maxRecord int, _ room) (decoded, error) {
	var d decoded
	var s json.Scanner
	body = bytes.TrimSpace(body)
	number := 0
	add := func(object []byte) error {
		number++
		if len(object) > maxRecord {
			return tooLong("element", number, len(object), maxRecord)
		}
		if what, at := scanObject(&s, object); what != "" {
			return fmt.Errorf("element %d is not a JSON object: %s, at its byte %d", number, what, at+1)
		}
		d.records.Add(oneLine(object))
		return nil
	}
	var err error
	switch {
	case len(body) == 0:
	case body[0] == '[':
		err = eachElement(body, add)
	default:
		err = add(body)
	}
	d.reply = replyRecords(d.records.Len())
	return d, err
}

// eachElement calls f with each element of an array. It searches only for brackets, commas and
// strings. It does not check whether the elements are valid.
func eachElement(array []byte, f func([]byte) error) error {
	depth, start, quoted := 0, 1, false
	for i := 0; i < len(array); i++ {
		c := array[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case '"':
			quoted = true
		case '[', '{':
			depth++
		case ']', '}', ',':
			if c == ',' && depth > 1 {
				continue
			}
			if c != ',' {
				depth--
			}
			if depth > 1 || depth == 1 && c != ',' {
				continue
			}
			element := bytes.TrimSpace(array[start:i])
			last := depth == 0
			if empty := len(element) == 0; !empty || !last || start > 1 {
				if err := f(element); err != nil {
					return err
				}
			}
			start = i + 1
			if last {
				if rest := bytes.TrimSpace(array[start:]); len(rest) > 0 || c == '}' {
					return fmt.Errorf("there is text behind the array, at byte %d", start+1)
				}
				return nil
			}
		}
	}
	return fmt.Errorf("the array is not closed at its end, byte %d", len(array))
}

// oneLine returns a valid JSON text with its line ends replaced by spaces.
func oneLine(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	out := bytes.Clone(text)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return out
}

// schemaOf returns schema fields with the given type and names.
func schemaOf(t stream.FieldType, names ...string) (out []stream.SchemaField) {
	for _, name := range names {
		out = append(out, stream.SchemaField{Name: name, Type: t})
	}
	return out
}
