// Package messages converts between records and the messages of a broker.
package messages

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// The formats of a message's content.
const (
	JSON = "json" // an object of the fields; {"message":"..."} if the record was not parsed
	Raw  = "raw"  // the record's text, or its field message if it was parsed and has one
)

// MaxHeaders bounds the number of a message's headers that the options can name.
const MaxHeaders = 100

// CheckHeaders returns an error if the option headers has too many names.
func CheckHeaders(headers map[string]expr.Text) error {
	if n := len(headers); n > MaxHeaders {
		return stream.OptionErrorf("headers", "has %d names, want at most %d", n, MaxHeaders)
	}
	return nil
}

// RecordError is the error of a record that cannot be made into a message. A sink refuses the record.
type RecordError struct{ Err error }

// Error implements error.
func (e *RecordError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// Maker makes the content and the headers of messages. It belongs to one goroutine at a time.
type Maker struct {
	format  string
	headers []expr.Named
	values  []*expr.Evaluator // of the headers
	batch   *stream.Batch
	message uint32 // index of the field message in the batch
	has     bool   // the batch has such a field
	memory  []byte // of the contents of the batch's messages
}

// NewMaker returns a maker of messages in the given format.
func NewMaker(format string, headers []expr.Named) *Maker {
	m := &Maker{format: format, headers: headers}
	for _, h := range headers {
		m.values = append(m.values, expr.NewEvaluator(h.Program))
	}
	return m
}

// jsonOverhead is an estimate of the bytes that format json adds to a record.
const jsonOverhead = 16

// Begin prepares the maker for the records of b.
func (m *Maker) Begin(b *stream.Batch) {
	m.batch = b
	m.memory = make([]byte, 0, int(b.RawBytes())+jsonOverhead*len(b.Records))
	m.message, m.has = b.FindName(stream.MessageName)
	for _, e := range m.values {
		e.Begin(b)
	}
}

// Headers calls add for each header of record i whose value is not null. add may keep the value.
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

// Content returns the content of the message for record i, which shares no memory with the batch.
// In format raw, it is nil if the record's field message is null. The contents of a batch share one
// allocation as far as they fit.
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
