//penstock:pure

package multilang

import (
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// AppendValues appends record i of b as the JSON of a tuple. The tuple consists of the values of
// the record's fields, in order. If the record has no fields, it consists of the record's text.
func AppendValues(dst []byte, b *stream.Batch, i int) []byte {
	r := &b.Records[i]
	dst = append(dst, '[')
	if r.NumFields == 0 {
		return append(ndjson.AppendString(dst, b.Text(i)), ']')
	}
	for n, f := range b.Fields[r.Field : r.Field+r.NumFields] {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = ndjson.AppendValue(dst, f.Kind, b.Value(f))
	}
	return append(dst, ']')
}
