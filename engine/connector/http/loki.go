//penstock:pure

package http

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// append appends {"streams":[{"stream":{labels},"values":[["nanoseconds","line"],...]},...]}: a
// stream for each set of labels, in the order of their first records.
func (l *LokiOptions) append(dst []byte, b *stream.Batch, now time.Time) []byte {
	b.Split()
	streams := make(map[string][]int)
	var order []string
	var labels []byte
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		labels = l.appendLabels(labels[:0], b, i)
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
			dst = strconv.AppendInt(dst, l.timeOf(b, i, now).UnixNano(), 10)
			dst = append(dst, `",`...)
			if l.isText(b, i) {
				dst = ndjson.AppendString(dst, trimRight(b.Text(i)))
			} else {
				line = ndjson.AppendRecord(line[:0], b, i)
				dst = ndjson.AppendString(dst, line)
			}
			dst = append(dst, ']')
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, `]}`...)
}

// appendLabels appends the labels of record i as a JSON object, in the order of their names, those
// of fields behind. A field that is missing or empty is no label: Loki knows no empty one.
func (l *LokiOptions) appendLabels(dst []byte, b *stream.Batch, i int) []byte {
	dst = append(dst, '{')
	first := true
	pair := func(name string, value []byte) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(ndjson.AppendString(dst, name), ':')
		dst = ndjson.AppendString(dst, value)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Labels)) {
		pair(name, []byte(l.Labels[name]))
	}
	for _, field := range l.LabelFields {
		if f, ok := fieldOf(b, i, field); ok && f.Len > 0 && f.Kind != stream.Null {
			value := b.Value(f)
			pair(labelOf(field), value[:min(len(value), maxLabelValue)])
		}
	}
	if first {
		pair("job", []byte("penstock")) // a stream without labels is refused
	}
	return append(dst, '}')
}

// maxLabelValue bounds a label's value in bytes, which is what Loki takes by default.
const maxLabelValue = 2048

func (l *LokiOptions) timeOf(b *stream.Batch, i int, now time.Time) time.Time {
	if l.Timestamp == "" {
		return now
	}
	if f, ok := fieldOf(b, i, l.Timestamp); ok {
		if at, ok := readTime(string(b.Value(f))); ok {
			return at
		}
	}
	return now
}

// timeForms are tried in turn.
var timeForms = []string{time.RFC3339Nano, "02/Jan/2006:15:04:05 -0700", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05"}

// readTime reads a record's time: RFC 3339, Apache's, or a Unix time, whose unit (seconds,
// milliseconds, micro- or nanoseconds) its size tells: as seconds all of them would lie thousands
// of years ahead.
func readTime(text string) (time.Time, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		switch {
		case n < 1e11:
			return time.Unix(n, 0), true
		case n < 1e14:
			return time.UnixMilli(n), true
		case n < 1e17:
			return time.UnixMicro(n), true
		}
		return time.Unix(0, n), true
	}
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil && at.Year() >= 1678 && at.Year() < 2262 { // what nanoseconds can say
			return at, true
		}
	}
	return time.Time{}, false
}
