//penstock:pure

package httpserver

import (
	"strings"

	"github.com/penstock-io/penstock/engine/kit/otlplog"
)

// otlpFields lists the fields of a log record with known types.
var otlpFields = otlplog.Fields()

// decodeOTLP reads an export request of logs. The response has the encoding of the request.
func decodeOTLP(contentType string, body []byte, maxRecord int) (decoded, error) {
	var d decoded
	add := func(record []byte) error {
		if len(record) > maxRecord {
			return tooLong("log record", d.records.Len()+1, len(record), maxRecord)
		}
		d.records.Add(record)
		return nil
	}
	if strings.HasPrefix(contentType, typeJSON) {
		d.reply = reply{200, typeJSON, []byte("{}")}
		return d, otlplog.JSON(body, add)
	}
	d.reply = reply{200, typeProtobuf, nil}
	return d, otlplog.Protobuf(body, add)
}
