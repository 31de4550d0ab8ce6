//penstock:pure

package deadletter

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// Version of the lines' form; docs/formats/dead-letters.md.
const Version = 1

// appendLine appends the letter as one line. The id comes second, so that a reader finds it without the record.
func (l *Letter) appendLine(dst []byte, o Options, now time.Time) []byte {
	text := func(key, value string) {
		dst = append(append(append(dst, `,"`...), key...), `":`...)
		dst = ndjson.AppendString(dst, value)
	}
	dst = append(dst, `{"version":1`...)
	text("id", l.ID)
	text("time", now.UTC().Format(time.RFC3339Nano))
	text("pipeline", o.Pipeline)
	text("route", o.Route)
	text("reason", l.Reason)
	text("partition", l.Partition)
	text("file", l.File)
	text("position", string(penstock.AppendPosition(nil, l.Position)))
	dst = append(dst, `,"attempts":`...)
	dst = strconv.AppendInt(dst, int64(l.Attempts), 10)
	text("worker", l.Worker)
	if utf8.Valid(l.Record) {
		dst = append(dst, `,"record":`...)
		dst = ndjson.AppendString(dst, l.Record)
	} else {
		dst = append(dst, `,"record_base64":"`...)
		dst = append(base64.StdEncoding.AppendEncode(dst, l.Record), '"')
	}
	return append(dst, '}', '\n')
}

// FileName is the name of a route's file in the folder of dead letters: pipeline, a dot, route, a dot and ndjson. Of both names
// letters, digits, - and _ stand as they are, other bytes as % and two hexadecimal digits, so that no two routes share one.
func FileName(pipeline, route string) string {
	dst := appendName(nil, pipeline)
	dst = appendName(append(dst, '.'), route)
	return string(append(dst, ".ndjson"...))
}

func appendName(dst []byte, name string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&0xF])
		}
	}
	return dst
}
