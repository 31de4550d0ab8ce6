//penstock:pure

package http

import (
	"bytes"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// contentTypes of the forms.
var contentTypes = map[string]string{
	NDJSON: "application/x-ndjson", JSONArray: "application/json", Raw: "text/plain",
	ElasticsearchBulk: "application/x-ndjson", Loki: "application/json", ClickHouse: "text/plain",
}

// appendBody appends the body of a request for the kept records of b; now is the time of records
// that have none.
func (o *Options) appendBody(dst []byte, b *stream.Batch, now time.Time) []byte {
	switch o.Body {
	case NDJSON, ClickHouse:
		return ndjson.Append(dst, b)
	case JSONArray:
		return appendArray(dst, b)
	case ElasticsearchBulk:
		return o.Elasticsearch.append(dst, b)
	case Loki:
		return o.Loki.append(dst, b, now)
	}
	return b.AppendRaw(dst)
}

func appendArray(dst []byte, b *stream.Batch) []byte {
	b.Split()
	dst = append(dst, '[')
	first := true
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		if !first {
			dst = append(dst, ',', '\n')
		}
		first = false
		dst = ndjson.AppendRecord(dst, b, i)
	}
	return append(dst, ']', '\n')
}

// append appends an action line and a document for each record. The id is what lets the store find
// a repetition.
func (e *ElasticsearchOptions) append(dst []byte, b *stream.Batch) []byte {
	b.Split()
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		dst = append(append(append(dst, `{"`...), e.Action...), `":{`...)
		comma := false
		if e.Index != "" {
			dst = ndjson.AppendString(append(dst, `"_index":`...), e.Index)
			comma = true
		}
		if id, ok := e.id(b, i); ok {
			if comma {
				dst = append(dst, ',')
			}
			dst = ndjson.AppendString(append(dst, `"_id":`...), id)
		}
		dst = append(dst, "}}\n"...)
		dst = append(ndjson.AppendRecord(dst, b, i), '\n')
	}
	return dst
}

func (e *ElasticsearchOptions) id(b *stream.Batch, i int) ([]byte, bool) {
	if e.IDField != "" {
		if f, ok := fieldOf(b, i, e.IDField); ok && f.Len > 0 {
			return b.Value(f), true
		}
	}
	if e.ID == idNone {
		return nil, false
	}
	return b.AppendRecordID(nil, i), true
}

// fieldOf returns the last field of that name of record i, which is the one that readers of JSON
// take.
func fieldOf(b *stream.Batch, i int, name string) (stream.Field, bool) {
	r := &b.Records[i]
	fields := b.Fields[r.Field : r.Field+r.NumFields]
	for n := len(fields) - 1; n >= 0; n-- {
		if b.Names[fields[n].Name] == name {
			return fields[n], true
		}
	}
	return stream.Field{}, false
}

// isText says whether record i is written as its text in Loki's line.
func (l *LokiOptions) isText(b *stream.Batch, i int) bool {
	return l.Line == lineRaw || l.Line == lineAuto && b.Records[i].NumFields == 0
}

func trimRight(line []byte) []byte { return bytes.TrimRight(line, "\r\n") }
