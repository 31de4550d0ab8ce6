//penstock:pure

package otlplog

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// shape describes the memory of a decoded protobuf message: its size without its texts, and the
// shapes of the messages in it.
type shape struct {
	bytes  int64
	fields map[protowire.Number]*shape
}

// The bytes that a decoded message takes: its struct, and the pointers to it. The pointers are in a
// slice with a capacity of up to twice its length. So two pointers are counted for each struct.
const (
	sizeRecord  = 208
	sizeMessage = 144
	sizeValue   = 96
)

// requestShape is the shape of an export request.
var requestShape = func() *shape {
	pair, value := &shape{bytes: sizeValue}, &shape{bytes: sizeValue}
	pair.fields = map[protowire.Number]*shape{2: value}
	value.fields = map[protowire.Number]*shape{
		5: {sizeMessage, map[protowire.Number]*shape{1: value}}, // array value
		6: {sizeMessage, map[protowire.Number]*shape{1: pair}},  // list of pairs
	}
	record := &shape{sizeRecord, map[protowire.Number]*shape{5: value, 6: pair}}
	resource := &shape{sizeMessage, map[protowire.Number]*shape{1: pair}}
	scope := &shape{sizeMessage, map[protowire.Number]*shape{3: pair}}
	scopeLogs := &shape{sizeMessage, map[protowire.Number]*shape{1: scope, 2: record}}
	resourceLogs := &shape{sizeMessage, map[protowire.Number]*shape{1: resource, 2: scopeLogs}}
	return &shape{sizeMessage, map[protowire.Number]*shape{1: resourceLogs}}
}()

// ProtobufMemory estimates the memory of the decoded form of a request. This may be much more than
// the size of the request: two bytes can encode a log record, and its struct takes a hundred times
// as much. The estimate does not include the memory of the records that [Protobuf] makes.
func ProtobufMemory(request []byte) int64 {
	return int64(len(request)) + requestShape.memory(request, maxDepth)
}

// memory returns the sum of the sizes of a message and of the messages in it. It stops at the first
// encoding error, and below the given depth. The decoder will report both.
func (s *shape) memory(message []byte, depth int) int64 {
	sum := s.bytes
	for len(message) > 0 && depth > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			break
		}
		message = message[n:]
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			break
		}
		if field := s.fields[number]; field != nil && kind == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(message)
			sum += field.memory(text, depth-1)
		}
		message = message[size:]
	}
	return sum
}

// JSONMemory is like [ProtobufMemory], but for requests in JSON. It counts each opening brace as a
// log record.
func JSONMemory(request []byte) int64 {
	return int64(len(request)) + sizeRecord*int64(bytes.Count(request, []byte{'{'}))
}
