package nats

import (
	"maps"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// metaAdder adds the fields of MetaOptions to records. It belongs to one goroutine.
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
	metaSubject = iota
	metaSequence
	metaTimestamp
	metaHeaders
)

// add adds the fields to the records of b, which were made of list. No further record may be
// appended to b.
func (a *metaAdder) add(b *stream.Batch, list []*content) {
	if !a.any {
		return
	}
	for i, c := range list {
		a.addTo(b, i, c)
	}
}

func (a *metaAdder) addTo(b *stream.Batch, i int, c *content) {
	from := b.OpenFields(i)
	for k, name := range a.names {
		if name == "" {
			continue
		}
		f := a.field(b, k, c)
		f.Name = b.Name(name)
		b.Fields = append(b.Fields, f)
	}
	b.SetFields(i, from)
}

// field writes the value of field k into the batch's arena.
func (a *metaAdder) field(b *stream.Batch, k int, c *content) (f stream.Field) {
	out := a.scratch[:0]
	switch k {
	case metaSubject:
		out = append(out, c.subject...)
	case metaSequence:
		f.Kind, out = stream.Number, strconv.AppendUint(out, c.seq, 10)
	case metaTimestamp:
		out = c.at.UTC().AppendFormat(out, time.RFC3339Nano)
	case metaHeaders:
		f.Kind, out = stream.JSON, appendHeaders(out, c.header)
	}
	a.scratch = out
	f.Off, f.Len = b.AppendData(out)
	return f
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
