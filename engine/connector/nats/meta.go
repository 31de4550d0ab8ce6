package nats

import (
	"maps"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Indexes of the fields in MetaOptions.fields.
const (
	metaSubject = iota
	metaSequence
	metaTimestamp
	metaHeaders
)

// fields returns the fields, in the order in which records get them.
func (m *MetaOptions) fields() messages.Meta {
	return messages.Meta{
		metaSubject:   {Name: m.Subject, Type: stream.TextType},
		metaSequence:  {Name: m.Sequence, Type: stream.IntegerType},
		metaTimestamp: {Name: m.Timestamp, Type: stream.TextType},
		metaHeaders:   {Name: m.Headers, Type: stream.JSONType},
	}
}

// addMeta adds metadata fields, which the MetaAdder selects, to the records of b. Record i of b was
// made from message i of list. No further record may be appended to b.
func addMeta(a *messages.MetaAdder, b *stream.Batch, list []*content) {
	if !a.Enabled() {
		return
	}
	for i, c := range list {
		a.Add(b, i, func(dst []byte, k int) ([]byte, stream.Kind) { return appendMeta(dst, c, k) })
	}
}

// appendMeta appends the value of field k of a message.
func appendMeta(dst []byte, c *content, k int) ([]byte, stream.Kind) {
	switch k {
	case metaSubject:
		return append(dst, c.subject...), stream.Text
	case metaSequence:
		return strconv.AppendUint(dst, c.seq, 10), stream.Number
	case metaTimestamp:
		return c.at.UTC().AppendFormat(dst, time.RFC3339Nano), stream.Text
	}
	return appendHeaders(dst, c.header), stream.JSON
}

// appendHeaders appends the headers as a JSON object, sorted by name. Several values of a name form
// an array.
func appendHeaders(dst []byte, h natsgo.Header) []byte {
	dst = append(dst, '{')
	for k, name := range slices.Sorted(maps.Keys(h)) {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(ndjson.AppendString(dst, []byte(name)), ':')
		values := h[name]
		if len(values) == 1 {
			dst = ndjson.AppendString(dst, []byte(values[0]))
			continue
		}
		dst = append(dst, '[')
		for i, v := range values {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = ndjson.AppendString(dst, []byte(v))
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}
