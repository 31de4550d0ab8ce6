package nats

import (
	"bytes"
	"fmt"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// badRecordError is the error of a record that cannot be made into a message.
type badRecordError struct{ err error }

// Error implements error.
func (e *badRecordError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *badRecordError) Unwrap() error { return e.err }

// messageMaker makes messages. It belongs to one goroutine at a time.
type messageMaker struct {
	o       *SinkOptions
	subject *expr.Evaluator // nil: a fixed subject
	id      *expr.Evaluator // nil: the record's id
	headers []*expr.Evaluator
	message uint32 // index of the field message in the batch
	has     bool   // the batch has such a field
	scratch []byte
}

func newMessageMaker(o *SinkOptions) *messageMaker {
	t := &messageMaker{o: o}
	if o.subject != nil {
		t.subject = expr.NewEvaluator(o.subject)
	}
	if o.id != nil {
		t.id = expr.NewEvaluator(o.id)
	}
	for _, h := range o.headers {
		t.headers = append(t.headers, expr.NewEvaluator(h.value))
	}
	return t
}

func (t *messageMaker) begin(b *stream.Batch) {
	t.message, t.has = b.FindName(stream.MessageName)
	for _, e := range append([]*expr.Evaluator{t.subject, t.id}, t.headers...) {
		if e != nil {
			e.Begin(b)
		}
	}
}

// make makes a message of record i. It shares no memory with the batch.
func (t *messageMaker) make(b *stream.Batch, i int) (*natsgo.Msg, error) {
	m := &natsgo.Msg{Subject: string(t.o.Subject), Header: make(natsgo.Header, 1+len(t.headers))}
	if t.subject != nil {
		text, err := t.subject.AppendText(nil, i)
		if err == nil {
			err = checkSubject(string(text), false)
		}
		if err != nil {
			return nil, fmt.Errorf("subject: %w", err)
		}
		m.Subject = string(text)
	}
	for k, e := range t.headers {
		value, err := e.AppendText(nil, i)
		if err == nil && bytes.ContainsAny(value, "\r\n") {
			err = fmt.Errorf("the value holds a line end, which no header may")
		}
		if err != nil {
			return nil, fmt.Errorf("headers.%s: %w", t.o.headers[k].name, err)
		}
		if value != nil {
			m.Header[t.o.headers[k].name] = []string{string(value)}
		}
	}
	id, err := t.recordID(b, i)
	if err != nil {
		return nil, err
	}
	if id != "" {
		m.Header[jetstream.MsgIDHeader] = []string{id}
	}
	m.Data = t.data(b, i)
	return m, nil
}

// recordID returns the id by which the stream detects duplicates.
func (t *messageMaker) recordID(b *stream.Batch, i int) (string, error) {
	if t.id == nil {
		t.scratch = b.AppendRecordID(t.scratch[:0], i)
		return string(t.scratch), nil
	}
	text, err := t.id.AppendText(t.scratch[:0], i)
	if err == nil && strings.ContainsAny(string(text), "\r\n") {
		err = fmt.Errorf("the value holds a line end, which no header may")
	}
	if err != nil {
		return "", fmt.Errorf("id: %w", err)
	}
	return string(text), nil
}

// data returns the data of the message for record i.
func (t *messageMaker) data(b *stream.Batch, i int) []byte {
	if t.o.Format == formatJSON {
		return ndjson.AppendRecord(nil, b, i)
	}
	if b.Records[i].Parsed && t.has {
		if f, ok := b.FieldNamed(i, t.message); ok {
			return bytes.Clone(b.Value(*f))
		}
	}
	return bytes.Clone(b.Text(i))
}
