package kafka

import (
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Indexes of the fields in MetaOptions.fields.
const (
	metaTopic = iota
	metaPartition
	metaOffset
	metaTimestamp
	metaKey
	metaHeaders
)

// fields returns the fields, in the order in which records get them.
func (m *MetaOptions) fields() messages.Meta {
	return messages.Meta{
		metaTopic:     {Name: m.Topic, Type: stream.TextType},
		metaPartition: {Name: m.Partition, Type: stream.IntegerType},
		metaOffset:    {Name: m.Offset, Type: stream.IntegerType},
		metaTimestamp: {Name: m.Timestamp, Type: stream.TextType},
		metaKey:       {Name: m.Key, Type: stream.TextType},
		metaHeaders:   {Name: m.Headers, Type: stream.JSONType},
	}
}

// addMeta adds the metadata fields of a to the records of b. records are the Kafka records from
// which b was made. If any fields are configured, the field message of a Kafka record without a
// value becomes null.
func addMeta(a *messages.MetaAdder, b *stream.Batch, records []*kgo.Record, count func(string, int64)) {
	tombstones := int64(0)
	for i, r := range records {
		if r.Value == nil {
			tombstones++
		}
		if !a.Enabled() {
			continue
		}
		a.Add(b, i, func(dst []byte, k int) ([]byte, stream.Kind) { return appendMeta(dst, r, k) })
		if r.Value == nil {
			b.FieldsOf(i)[0].Kind = stream.Null // the message
		}
	}
	if tombstones > 0 {
		count("tombstones", tombstones)
	}
}

// appendMeta appends the value of the metadata field with index k for the Kafka record r.
func appendMeta(dst []byte, r *kgo.Record, k int) ([]byte, stream.Kind) {
	switch k {
	case metaTopic:
		return append(dst, r.Topic...), stream.Text
	case metaPartition:
		return strconv.AppendInt(dst, int64(r.Partition), 10), stream.Number
	case metaOffset:
		return strconv.AppendInt(dst, r.Offset, 10), stream.Number
	case metaTimestamp:
		return r.Timestamp.UTC().AppendFormat(dst, time.RFC3339Nano), stream.Text
	case metaHeaders:
		return appendHeaders(dst, r.Headers), stream.JSON
	}
	if r.Key == nil {
		return dst, stream.Null
	}
	return append(dst, r.Key...), stream.Text
}

// appendHeaders appends the headers as a JSON object. The values of a repeated name form an array.
func appendHeaders(dst []byte, headers []kgo.RecordHeader) []byte {
	dst = append(dst, '{')
	first := true
	for i := range headers {
		sameName := func(h kgo.RecordHeader) bool { return h.Key == headers[i].Key }
		if slices.ContainsFunc(headers[:i], sameName) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(ndjson.AppendString(dst, headers[i].Key), ':')
		if !slices.ContainsFunc(headers[i+1:], sameName) {
			dst = appendHeader(dst, headers[i].Value)
			continue
		}
		dst = append(dst, '[')
		for _, h := range headers[i:] {
			if sameName(h) {
				dst = append(appendHeader(dst, h.Value), ',')
			}
		}
		dst[len(dst)-1] = ']'
	}
	return append(dst, '}')
}

func appendHeader(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null"...)
	}
	return ndjson.AppendString(dst, value)
}
