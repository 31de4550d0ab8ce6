//penstock:pure

package httpserver

import (
	"strings"

	"github.com/penstock-io/penstock/engine/kit/otlplog"
)

// otlpFields lists the fields of a log record with known types.
var otlpFields = otlplog.Fields()

// decodeOTLP decodes an OTLP export request with logs. The response has the same encoding as the
// request.
func decodeOTLP(contentType string, body []byte, maxRecord int, room room) (decoded, error) {
	var d decoded
	decode, memory := otlplog.Protobuf, otlplog.ProtobufMemory
	d.reply = reply{200, typeProtobuf, nil}
	if strings.HasPrefix(contentType, typeJSON) {
		decode, memory = otlplog.JSON, otlplog.JSONMemory
		d.reply = reply{200, typeJSON, []byte("{}")}
	}
	used := memory(body)
	if err := room(used); err != nil {
		return decoded{}, err
	}
	err := decode(body, func(record []byte) error {
		if len(record) > maxRecord {
			return tooLong("log record", d.records.Len()+1, len(record), maxRecord)
		}
		return d.add(record, used, room)
	})
	return d, err
}
