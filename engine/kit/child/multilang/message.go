//penstock:pure

// Package multilang implements Storm's multilang protocol, for scripts that were written for
// Storm's class ShellBolt. It has the role of the Storm worker: it sends tuples (lists of values)
// to a child, and the child acks or fails each tuple and may emit new ones. The package follows
// https://storm.apache.org/releases/current/Multilang-protocol.html and recorded sessions of a
// Storm 2.8.3 worker.
//
// A message is one JSON value, a line end, the line `end`, and a line end. [Bolt] is the
// conversation with one child. The child may have several unanswered tuples, and may answer them in
// any order.
//
// The package does not retry failed tuples. An answer for a tuple that the child does not have is a
// protocol error. Some messages that crash Storm's worker are handled without an error, such as a
// direct emit or an unknown metric.
package multilang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// Message is a message from a child.
type Message struct {
	Command string            `json:"command"`
	ID      ID                `json:"id"`      // of ack and fail
	Anchors []ID              `json:"anchors"` // of emit
	Stream  string            `json:"stream"`
	Task    *json.Number      `json:"task"` // of a direct emit
	Tuple   []json.RawMessage `json:"tuple"`
	Need    *bool             `json:"need_task_ids"` // nil means yes
	Msg     string            `json:"msg"`
	Level   *json.Number      `json:"level"`
	PID     *json.Number      `json:"pid"` // of the handshake response
	Name    string            `json:"name"`
	Params  json.RawMessage   `json:"params"`
}

// ID is the id of a tuple. Storm uses strings. An id that is another JSON value is represented by
// its JSON text.
type ID string

// UnmarshalJSON stores a string unquoted, and any other value as its JSON text.
func (id *ID) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(id))
	}
	*id = ID(text)
	return nil
}

// maxQuoted is the number of bytes of a message that errors quote.
const maxQuoted = 200

// errNotObject means that a message is valid JSON but not an object.
var errNotObject = errors.New("want an object")

// Parse parses the JSON of one message.
func Parse(text []byte) (Message, error) {
	var m Message
	text = bytes.TrimSpace(text)
	var err error
	if len(text) == 0 || text[0] != '{' {
		err = errNotObject
	} else {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("%.*q is no message of the multilang protocol: %w; "+
			"print nothing to standard output but messages",
			maxQuoted, text[:min(len(text), maxQuoted)], err)
	}
	return m, nil
}

// NeedsTaskIDs reports whether the emit expects a response with the ids of the receiving tasks.
func (m *Message) NeedsTaskIDs() bool { return m.Task == nil && (m.Need == nil || *m.Need) }

// Handshake is the first message to the child.
type Handshake struct {
	PIDDir  string // a directory in which the child creates an empty file named by its process id
	Conf    map[string]any
	Context map[string]any
}

// The ids of the tasks in the topology that the handshake describes: the child, the component that
// sends tuples to the child, and the component that receives its emits.
const (
	OwnTask    = 2
	SourceTask = 1
	nextTask   = 3
)

// NewHandshake describes a topology of three components: the source of the tuples, the child, and a
// receiver of its emits. The tuples of the source have one field, "message".
func NewHandshake(pidDir, source string, conf map[string]string) Handshake {
	values := make(map[string]any, len(conf))
	for name, value := range conf {
		values[name] = value
	}
	return Handshake{PIDDir: pidDir, Conf: values, Context: map[string]any{
		"taskid": OwnTask, "componentid": "exec",
		"task->component":      map[string]string{"1": source, "2": "exec", "3": "next"},
		"streams":              []string{"default"},
		"stream->outputfields": map[string][]string{"default": {"message"}},
		"stream->target->grouping": map[string]any{
			"default": map[string]any{"next": map[string]string{"type": "SHUFFLE"}}},
		"source->stream->grouping": map[string]any{
			source: map[string]any{"default": map[string]string{"type": "SHUFFLE"}}},
		"source->stream->fields": map[string]any{
			source: map[string][]string{"default": {"message"}}},
	}}
}

// Append appends the handshake as a message.
func (h Handshake) Append(dst []byte) ([]byte, error) {
	text, err := json.Marshal(map[string]any{"pidDir": h.PIDDir, "context": h.Context,
		"conf": h.Conf})
	if err != nil {
		return dst, fmt.Errorf("the configuration of the handshake: %w", err)
	}
	return end(append(dst, text...)), nil
}

// AppendTuple appends the message that gives a tuple to the child. values is a JSON array.
func AppendTuple(dst []byte, id, component string, task int, values []byte) []byte {
	dst = ndjson.AppendString(append(dst, `{"comp":`...), component)
	dst = append(append(dst, `,"tuple":`...), values...)
	dst = strconv.AppendInt(append(dst, `,"task":`...), int64(task), 10)
	dst = ndjson.AppendString(append(dst, `,"stream":"default","id":`...), id)
	return end(append(dst, '}'))
}

// AppendHeartbeat appends the message for a heartbeat, which the child must answer.
func AppendHeartbeat(dst []byte, id string) []byte {
	dst = append(dst, `{"comp":null,"tuple":[],"task":-1,"stream":"__heartbeat","id":`...)
	return end(append(ndjson.AppendString(dst, id), '}'))
}

// AppendTaskIDs appends the response to an emit: the ids of the tasks that receive the tuple.
func AppendTaskIDs(dst []byte) []byte {
	return end(append(strconv.AppendInt(append(dst, '['), nextTask, 10), ']'))
}

func end(dst []byte) []byte { return append(dst, "\nend\n"...) }
