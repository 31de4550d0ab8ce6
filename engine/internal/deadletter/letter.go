//penstock:pure

package deadletter

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

// Version is the version of the format of a line. See docs/formats/dead-letters.md.
const Version = 1

// Entry is a dead letter as stored in a file, in JSON. The id is near the beginning, so that a
// reader can find it without parsing the record.
type Entry struct {
	Version      int       `json:"version"`
	ID           string    `json:"id"`
	Time         time.Time `json:"time"`
	Pipeline     string    `json:"pipeline"`
	Route        string    `json:"route"`
	Reason       string    `json:"reason"`
	Detail       string    `json:"detail,omitempty"`
	Partition    string    `json:"partition"`
	File         string    `json:"file"`
	Position     string    `json:"position"`
	Attempts     int       `json:"attempts"`
	Worker       string    `json:"worker"`
	Record       *string   `json:"record,omitempty"`
	RecordBase64 []byte    `json:"record_base64,omitempty"`

	History []stream.DeliveryAttempt `json:"history,omitempty"`
}

// writeLine writes the letter as one line. If the record is not UTF-8, it is encoded in base64, so
// that all its bytes are preserved. Secrets in URLs of the reason are masked.
func writeLine(to *json.Encoder, l *Letter, o Options, now time.Time) error {
	out := Entry{
		Version: Version, ID: l.ID, Time: now.UTC(), Pipeline: o.Pipeline, Route: o.Route,
		Reason: stream.MaskURLs(l.Reason), Detail: stream.MaskURLs(l.Detail),
		Partition: l.Partition, File: l.File,
		Position: string(stream.AppendPosition(nil, l.Position)),
		Attempts: l.Attempts, Worker: l.Worker, History: l.History,
	}
	if utf8.Valid(l.Record) {
		text := string(l.Record)
		out.Record = &text
	} else {
		out.RecordBase64 = l.Record
	}
	return to.Encode(&out)
}

// FileName returns the name of a route's file in the directory of dead letters:
// PIPELINE.ROUTE.ndjson. In both names, every byte except ASCII letters, digits, - and _ is
// replaced by % and two hexadecimal digits. Different routes therefore have different files.
func FileName(pipeline, route string) string {
	dst := appendName(nil, pipeline)
	dst = appendName(append(dst, '.'), route)
	return string(append(dst, ".ndjson"...))
}

func appendName(dst []byte, name string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&0xF])
		}
	}
	return dst
}
