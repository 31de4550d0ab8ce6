//penstock:pure

package otlplog

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// shape describes a protobuf message: the memory that it takes besides its texts, and its fields
// that are messages.
type shape struct {
	bytes  int64
	fields map[protowire.Number]*shape
}

// These sizes are those of the structs and of the pointers to them. The pointers are in slices that
// have grown to twice the necessary length.
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
		5: {sizeMessage, map[protowire.Number]*shape{1: value}}, // an array
		6: {sizeMessage, map[protowire.Number]*shape{1: pair}},  // a list of pairs
	}
	record := &shape{sizeRecord, map[protowire.Number]*shape{5: value, 6: pair}}
	resource := &shape{sizeMessage, map[protowire.Number]*shape{1: pair}}
	scope := &shape{sizeMessage, map[protowire.Number]*shape{3: pair}}
	scopeLogs := &shape{sizeMessage, map[protowire.Number]*shape{1: scope, 2: record}}
	resourceLogs := &shape{sizeMessage, map[protowire.Number]*shape{1: resource, 2: scopeLogs}}
	return &shape{sizeMessage, map[protowire.Number]*shape{1: resourceLogs}}
}()

// ProtobufMemory estimates the memory of the decoded form of a request. [Protobuf] also needs
// memory for the records that it makes from that form. The decoded form can be much larger than the
// request: two bytes can encode a log record, and its struct takes a hundred times as much.
func ProtobufMemory(request []byte) int64 {
	return int64(len(request)) + requestShape.memory(request, maxDepth)
}

// memory adds up the sizes of a message and of the messages in it. It ends at the first encoding
// error, which the decoder reports later.
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

// JSONMemory is [ProtobufMemory] for [JSON].
func JSONMemory(request []byte) int64 {
	return int64(len(request)) + sizeRecord*int64(bytes.Count(request, []byte{'{'}))
}
