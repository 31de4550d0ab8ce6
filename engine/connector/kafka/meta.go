package kafka

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// metaAdder adds the fields of MetaOptions to records. It belongs to one reader.
type metaAdder struct {
	names   []string // flat field names; "" for no field
	any     bool
	scratch []byte
}

func newMetaAdder(o *MetaOptions) *metaAdder {
	a := new(metaAdder)
	for _, text := range o.names() {
		flat := ""
		if text != "" {
			flat, a.any = fieldname.Lenient(text).Flat, true
		}
		a.names = append(a.names, flat)
	}
	return a
}

// Indexes of the fields, in the order of MetaOptions.names.
const (
	metaTopic = iota
	metaPartition
	metaOffset
	metaTimestamp
	metaKey
	metaHeaders
)

// add adds the fields to the records of b, which were made of records. If any field is configured,
// a record without a value gets the message null.
func (a *metaAdder) add(b *stream.Batch, records []*kgo.Record, count func(string, int64)) {
	tombstones := int64(0)
	for _, r := range records {
		if r.Value == nil {
			tombstones++
		}
	}
	if tombstones > 0 {
		count("tombstones", tombstones)
	}
	if !a.any || len(records) == 0 {
		return
	}
	var topic stream.Field // the same for all records
	topic.Off, topic.Len = b.AppendData([]byte(records[0].Topic))
	for i, r := range records {
		from := b.OpenFields(i)
		if r.Value == nil {
			b.Fields[from].Kind = stream.Null
		}
		for k, name := range a.names {
			if name == "" {
				continue
			}
			f := topic
			if k != metaTopic {
				f = a.field(b, k, r)
			}
			f.Name = b.Name(name)
			b.Fields = append(b.Fields, f)
		}
		b.SetFields(i, from)
	}
}

// field writes the value of field k into the batch's arena.
func (a *metaAdder) field(b *stream.Batch, k int, r *kgo.Record) (f stream.Field) {
	out := a.scratch[:0]
	switch k {
	case metaPartition:
		f.Kind, out = stream.Number, strconv.AppendInt(out, int64(r.Partition), 10)
	case metaOffset:
		f.Kind, out = stream.Number, strconv.AppendInt(out, r.Offset, 10)
	case metaTimestamp:
		out = r.Timestamp.UTC().AppendFormat(out, time.RFC3339Nano)
	case metaKey:
		if r.Key == nil {
			f.Kind = stream.Null
		}
		out = append(out, r.Key...)
	case metaHeaders:
		f.Kind, out = stream.JSON, appendHeaders(out, r.Headers)
	}
	a.scratch = out
	f.Off, f.Len = b.AppendData(out)
	return f
}

// appendHeaders appends the headers as a JSON object. The values of a repeated name form an array.
func appendHeaders(dst []byte, headers []kgo.RecordHeader) []byte {
	dst = append(dst, '{')
	first := true
	for i := range headers {
		if countNamed(headers[:i], headers[i].Key) > 0 {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(ndjson.AppendString(dst, headers[i].Key), ':')
		if countNamed(headers[i+1:], headers[i].Key) == 0 {
			dst = appendHeader(dst, headers[i].Value)
			continue
		}
		dst = append(dst, '[')
		for _, h := range headers[i:] {
			if h.Key == headers[i].Key {
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

func countNamed(headers []kgo.RecordHeader, name string) (n int) {
	for i := range headers {
		if headers[i].Key == name {
			n++
		}
	}
	return n
}
