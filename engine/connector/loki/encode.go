//penstock:pure

package loki

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Append implements httpsink.Codec. It appends a push request with the kept records of b (neither
// dropped nor dead-lettered):
//
//	{"streams":[{"stream":{labels},"values":[["nanoseconds","line",{metadata}],...]},...]}
//
// There is one stream for each set of labels, in the order in which the sets first appear. A line
// without metadata has only the first two elements.
func (c codec) Append(dst []byte, b *stream.Batch, _ func(int, error)) []byte {
	streams := make(map[string][]int)
	var order []string
	var labels []byte
	for _, i := range b.AppendKept(nil) {
		labels = c.appendLabels(labels[:0], b, i)
		if _, ok := streams[string(labels)]; !ok {
			order = append(order, string(labels))
		}
		streams[string(labels)] = append(streams[string(labels)], i)
	}
	dst = append(dst, `{"streams":[`...)
	var line []byte
	for n, key := range order {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"stream":`...), key...), `,"values":[`...)
		for k, i := range streams[key] {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `["`...)
			at := httpsink.TimeOf(b, i, c.Timestamp, timeOfReading(b, i))
			dst = strconv.AppendInt(dst, at.UnixNano(), 10)
			dst = append(dst, `",`...)
			if c.isText(b, i) {
				dst = ndjson.AppendString(dst, bytes.TrimRight(b.Text(i), "\r\n"))
			} else {
				line = ndjson.AppendRecord(line[:0], b, i)
				dst = ndjson.AppendString(dst, line)
			}
			dst = append(c.appendMetadata(dst, b, i), ']')
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, `]}`...)
}

// timeOfReading returns the time at which b was read, plus a nanosecond for each byte of b before
// record i, and for each earlier record from the same source record. The nanoseconds make the times
// of records differ, because Loki stores only one of several lines with the same labels, time and
// text. A record has the same time in a piece of b as in b, so Loki stores it only once even if b
// was sent before.
func timeOfReading(b *stream.Batch, i int) time.Time {
	r := &b.Records[i]
	return b.Time.Add(time.Duration(r.Off) + time.Duration(r.Sub))
}

// isText reports whether the line of record i in Loki is the text of the record, and not a JSON
// object.
func (l *Streams) isText(b *stream.Batch, i int) bool {
	return l.Line == lineRaw || l.Line == lineAuto && b.Records[i].NumFields == 0
}

// appendLabels appends the labels of record i as a JSON object: first the fixed labels, sorted by
// name, then those from fields. A missing or empty field gives no label, because labels in Loki
// cannot be empty.
func (l *Streams) appendLabels(dst []byte, b *stream.Batch, i int) []byte {
	start := len(dst)
	for _, name := range slices.Sorted(maps.Keys(l.Labels)) {
		dst = appendPair(dst, start, name, []byte(l.Labels[name]))
	}
	dst = appendFields(dst, start, b, i, l.LabelFields, maxLabelValue)
	if len(dst) == start {
		dst = appendPair(dst, start, "job", []byte("penstock")) // Loki requires at least one label
	}
	return append(dst, '}')
}

// appendMetadata appends the structured metadata of record i, if any.
func (l *Streams) appendMetadata(dst []byte, b *stream.Batch, i int) []byte {
	comma := len(dst)
	dst = append(dst, ',')
	start := len(dst)
	if dst = appendFields(dst, start, b, i, l.MetadataFields, math.MaxInt); len(dst) == start {
		return dst[:comma]
	}
	return append(dst, '}')
}

// appendFields appends the fields of record i with the given names to the JSON object that begins
// at offset start of dst. It omits fields that are missing, empty or null. A value is cut off after
// limit bytes.
func appendFields(dst []byte, start int, b *stream.Batch, i int, names []string, limit int) []byte {
	for _, field := range names {
		if f, ok := httpsink.FieldOf(b, i, field); ok && f.Len > 0 && f.Kind != stream.Null {
			value := b.Value(f)
			dst = appendPair(dst, start, labelOf(field), value[:min(len(value), limit)])
		}
	}
	return dst
}

// appendPair appends a member to the JSON object that begins at offset start of dst. It begins the
// object if dst ends there. The object must not be closed yet.
func appendPair(dst []byte, start int, name string, value []byte) []byte {
	separator := byte(',')
	if len(dst) == start {
		separator = '{'
	}
	dst = append(ndjson.AppendString(append(dst, separator), name), ':')
	return ndjson.AppendString(dst, value)
}

// maxLabelValue is the maximum length of a label's value in bytes, as in Loki's default
// configuration.
const maxLabelValue = 2048
