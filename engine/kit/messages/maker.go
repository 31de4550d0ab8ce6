// Package messages converts records to messages of a broker, and adds the properties of messages to
// records.
package messages

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// The formats of the content of a message.
const (
	JSON = "json" // an object with the fields; {"message":"..."} if the record was not parsed
	Raw  = "raw"  // the record's text; if it was parsed and has a field message, this field
)

// MaxHeaders is the maximum number of headers in the option headers.
const MaxHeaders = 100

// CheckHeaders returns an error if the option headers has too many names.
func CheckHeaders(headers map[string]expr.Text) error {
	if n := len(headers); n > MaxHeaders {
		return stream.OptionErrorf("headers", "has %d names, want at most %d", n, MaxHeaders)
	}
	return nil
}

// RecordError means that a record cannot be made into a message. The sink refuses the record.
type RecordError struct{ Err error }

// Error implements error.
func (e *RecordError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// Maker makes the content and the headers of messages. Only one goroutine at a time may use it.
type Maker struct {
	format  string
	headers []expr.Named
	values  []*expr.Evaluator // evaluators of the values of the headers
	batch   *stream.Batch
	message uint32 // index of the name message in the batch
	has     bool   // the batch has the name message
	memory  []byte // for the contents of the batch's messages
}

// NewMaker returns a Maker for messages in the given format.
func NewMaker(format string, headers []expr.Named) *Maker {
	m := &Maker{format: format, headers: headers}
	for _, h := range headers {
		m.values = append(m.values, expr.NewEvaluator(h.Program))
	}
	return m
}

// jsonOverhead is the estimated number of bytes that the format json adds to a record.
const jsonOverhead = 16

// Begin prepares m for the records of b.
func (m *Maker) Begin(b *stream.Batch) {
	m.batch = b
	m.memory = make([]byte, 0, int(b.RawBytes())+jsonOverhead*len(b.Records))
	m.message, m.has = b.FindName(stream.MessageName)
	for _, e := range m.values {
		e.Begin(b)
	}
}

// Headers calls add for each header of record i, except headers whose value is null or an empty
// text. The function add may keep the slice that it gets.
func (m *Maker) Headers(i int, add func(name string, value []byte) error) error {
	for k, e := range m.values {
		name := m.headers[k].Name
		value, err := e.AppendText(nil, i)
		if err == nil && value != nil {
			err = add(name, value)
		}
		if err != nil {
			return fmt.Errorf("headers.%s: %w", name, err)
		}
	}
	return nil
}

// Content returns the content of the message for record i. It is nil if the format is raw and the
// field `message` is null. The content shares no memory with the batch. To save allocations, the
// contents of one batch are parts of one buffer. A content that does not fit into the buffer gets
// memory of its own.
func (m *Maker) Content(i int) []byte {
	free := m.memory[len(m.memory):]
	out := m.appendContent(free, i)
	if cap(out) == cap(free) {
		m.memory = m.memory[:len(m.memory)+len(out)]
	}
	return out[:len(out):len(out)]
}

func (m *Maker) appendContent(dst []byte, i int) []byte {
	b := m.batch
	if m.format == JSON {
		return ndjson.AppendRecord(dst, b, i)
	}
	if b.Records[i].Parsed && m.has {
		if f, ok := b.FieldNamed(i, m.message); ok {
			if f.Kind == stream.Null {
				return nil
			}
			return append(dst, b.Value(*f)...)
		}
	}
	return append(dst, b.Text(i)...)
}
