package nats

import (
	"bytes"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/stream"
)

// messageMaker makes the messages that the sink publishes. Only one goroutine may use it at a time.
type messageMaker struct {
	*messages.Maker
	o       *SinkOptions
	subject *expr.Evaluator // nil: a fixed subject
	id      *expr.Evaluator // nil: route and record's id
	route   string          // pipeline and route, with a slash after each
	scratch []byte
	message natsgo.Msg // the message made last
	idValue []string   // value of its header Nats-Msg-Id
}

func newMessageMaker(o *SinkOptions, route string) *messageMaker {
	return &messageMaker{
		Maker: messages.NewMaker(o.Format, o.headers), o: o, route: route,
		subject: expr.NewEvaluator(o.subject), id: expr.NewEvaluator(o.id),
		message: natsgo.Msg{Header: make(natsgo.Header)}, idValue: make([]string, 1),
	}
}

func (t *messageMaker) begin(b *stream.Batch) {
	t.Begin(b)
	t.subject.Begin(b)
	t.id.Begin(b)
}

// make makes a message of record i, which is valid until the next call.
func (t *messageMaker) make(b *stream.Batch, i int) (*natsgo.Msg, error) {
	m := &t.message
	clear(m.Header)
	if t.o.Stream != "" {
		m.Header[jetstream.ExpectedStreamHeader] = []string{t.o.Stream}
	}
	m.Subject = string(t.o.Subject)
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
	err := t.Headers(i, func(name string, value []byte) error {
		m.Header[name] = []string{string(value)}
		return checkHeaderValue(value)
	})
	if err != nil {
		return nil, err
	}
	id, err := t.recordID(b, i)
	if err != nil {
		return nil, err
	}
	if id != "" {
		t.idValue[0] = id
		m.Header[jetstream.MsgIDHeader] = t.idValue
	}
	m.Data = t.Content(i)
	return m, nil
}

// recordID returns the id of record i by which the stream recognizes a message that it already has.
// Without the option id, the id contains the route, for the following reason. A stream compares the
// ids of all its messages, whatever their subject. If two routes wrote the same record to a stream
// with the same id, the stream would drop the second message as a duplicate.
func (t *messageMaker) recordID(b *stream.Batch, i int) (string, error) {
	if t.id == nil {
		t.scratch = b.AppendRecordID(append(t.scratch[:0], t.route...), i)
		return string(t.scratch), nil
	}
	text, err := t.id.AppendText(t.scratch[:0], i)
	if err == nil {
		err = checkHeaderValue(text)
	}
	if err != nil {
		return "", fmt.Errorf("id: %w", err)
	}
	return string(text), nil
}

// checkHeaderValue returns an error for a value that would end its header.
func checkHeaderValue(value []byte) error {
	if bytes.ContainsAny(value, "\r\n") {
		return errors.New("the value holds a line end, which no header may")
	}
	return nil
}
