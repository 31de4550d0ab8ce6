package elasticsearch

import (
	"fmt"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Codec returns the codec for bulk requests. If Shape was not called before, expressions may use
// any field.
func (d *Documents) Codec() (httpsink.Codec, error) {
	if !d.shaped {
		if _, err := d.Shape(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	c := &codec{Documents: d}
	c.encoders.New = func() any {
		return &encoder{Documents: d, target: expr.NewEvaluator(d.target),
			routing: expr.NewEvaluator(d.routing)}
	}
	return c, nil
}

// codec encodes bulk requests and evaluates responses. It implements httpsink.Codec.
type codec struct {
	*Documents
	encoders sync.Pool // *encoder
}

// Format implements httpsink.Codec. It returns the path and headers of bulk requests.
func (c *codec) Format() httpsink.Format { return c.format() }

// Append implements httpsink.Codec. For each kept record (neither dropped nor dead-lettered), it
// appends an action line and a document, unless it refuses the record. If the action contains the
// record's id, the store recognizes a record that it already has.
func (c *codec) Append(dst []byte, b *stream.Batch, refuse func(int, error)) []byte {
	e := c.encoders.Get().(*encoder)
	defer c.encoders.Put(e)
	kept := b.AppendKept(nil)
	e.target.Begin(b)
	e.routing.Begin(b)
	for _, i := range kept {
		start := len(dst)
		var err error
		if dst, err = e.appendAction(dst, b, i); err != nil {
			dst = dst[:start]
			refuse(i, err)
			continue
		}
		dst = append(e.appendDocument(dst, b, i), '\n')
	}
	return dst
}

// Outcome implements httpsink.Codec. It evaluates the result of each record in the response.
func (c *codec) Outcome(b *stream.Batch, r *httpsink.Response) error {
	if r.Err != nil || r.Cut != nil {
		return r.Err
	}
	return bulkOutcome(b, r.Body, c.Action == actionCreate && c.ID == idRecord, r.Where())
}

// encoder encodes batches as bulk requests, one batch at a time.
type encoder struct {
	*Documents
	target, routing *expr.Evaluator // nil if the option is not an expression
	text            []byte
}

// appendAction appends the action line of record i.
func (e *encoder) appendAction(dst []byte, b *stream.Batch, i int) ([]byte, error) {
	dst = append(append(append(dst, `{"`...), e.Action...), `":{`...)
	start := len(dst)
	key, name, isExpression := e.name()
	e.text = append(e.text[:0], name...)
	var err error
	if isExpression {
		if e.text, err = e.target.AppendText(e.text[:0], i); err != nil {
			return dst, fmt.Errorf("%s: %w", key, err)
		}
		if reason := checkName(string(e.text)); reason != "" {
			return dst, fmt.Errorf("%s: %.80q %s", key, e.text, reason)
		}
	}
	dst = appendMember(dst, start, "_index", e.text)
	if id, ok := e.id(b, i); ok {
		dst = appendMember(dst, start, "_id", id)
	}
	if e.routing != nil {
		if e.text, err = e.routing.AppendText(e.text[:0], i); err != nil {
			return dst, fmt.Errorf("routing: %w", err)
		}
		dst = appendMember(dst, start, "routing", e.text)
	}
	return append(dst, "}}\n"...), nil
}

// appendMember appends a member to an open JSON object, with a comma before it unless it is the
// first member. The members begin at offset start. If value is empty, appendMember does nothing.
func appendMember(dst []byte, start int, name string, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	if len(dst) > start {
		dst = append(dst, ',')
	}
	return ndjson.AppendString(append(ndjson.AppendString(dst, name), ':'), value)
}

func (d *Documents) id(b *stream.Batch, i int) ([]byte, bool) {
	if d.IDField != "" {
		if f, ok := httpsink.FieldOf(b, i, d.IDField); ok && f.Len > 0 {
			return b.Value(f), true
		}
	}
	if d.ID == idNone {
		return nil, false
	}
	return stream.AppendShortID(nil, b, i, maxID), true
}

// maxID is the maximum length of a document's id in bytes. A store refuses the whole request if one
// id is longer.
const maxID = 512

// timestampField is the field with the time of a document. Each document of a data stream must have
// it.
const timestampField = "@timestamp"

// appendDocument appends the document of record i. If the document needs a timestamp and has none,
// appendDocument adds one.
func (e *encoder) appendDocument(dst []byte, b *stream.Batch, i int) []byte {
	_, has := httpsink.FieldOf(b, i, timestampField)
	if has || e.DataStream == "" && e.Timestamp == "" {
		return ndjson.AppendRecord(dst, b, i)
	}
	at := httpsink.TimeOf(b, i, e.Timestamp, b.Time)
	dst = append(dst, `{"`+timestampField+`":"`...)
	dst = append(at.UTC().AppendFormat(dst, time.RFC3339Nano), '"', ',')
	start := len(dst)
	dst = ndjson.AppendRecord(dst, b, i)
	if dst = append(dst[:start], dst[start+1:]...); dst[start] == '}' { // the record has no fields
		dst = append(dst[:start-1], '}')
	}
	return dst
}
