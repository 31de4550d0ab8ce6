//penstock:pure

// Package multilang speaks Storm's multilang protocol with a child process, as the platform: what a
// ShellBolt's script expects of Storm it gets from here.
// https://storm.apache.org/releases/current/Multilang-protocol.html, and what a real worker of
// 2.8.3 says and hears.
//
// A message is one JSON value, a line end, the line `end`, a line end. [Bolt] is the talk with one
// child: tuples go out, some ahead; acks, fails and emits come back in any order. The package
// decides nothing about when to try again, and believes nothing that a child says of tuples that it
// does not have. Where Storm's worker dies (a direct emit, an unknown metric), it does not.
package multilang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Message is what a child says.
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
	PID     *json.Number      `json:"pid"` // of the handshake's answer
	Name    string            `json:"name"`
	Params  json.RawMessage   `json:"params"`
}

// ID is the id of a tuple: a text in Storm, but any JSON value that comes back is known by how it
// reads.
type ID string

// UnmarshalJSON takes a string as its text, anything else as it is written.
func (id *ID) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(id))
	}
	*id = ID(text)
	return nil
}

// maxQuoted is how much of a message an error quotes, in bytes.
const maxQuoted = 200

// errNotObject says that a message is JSON, but no object.
var errNotObject = errors.New("want an object")

// Parse reads the JSON of one message.
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
		return m, fmt.Errorf("%.*q is no message of the multilang protocol: %w; print nothing to standard output but messages",
			maxQuoted, text[:min(len(text), maxQuoted)], err)
	}
	return m, nil
}

// NeedsTaskIDs says whether the emit waits for the numbers of the tasks that got its tuple.
func (m *Message) NeedsTaskIDs() bool { return m.Task == nil && (m.Need == nil || *m.Need) }

// Handshake is what the child is told first.
type Handshake struct {
	PIDDir  string // a folder in which the child makes an empty file, named by its process id
	Conf    map[string]any
	Context map[string]any
}

// The task numbers in the context that a child is given: its own, and the one whose tuples it gets.
const (
	OwnTask    = 2
	SourceTask = 1
	nextTask   = 3
)

// NewHandshake describes a topology of three: what tuples come from, the child, what gets its
// emits.
func NewHandshake(pidDir, source, component string, fields []string, conf map[string]any) Handshake {
	if conf == nil {
		conf = map[string]any{}
	}
	return Handshake{PIDDir: pidDir, Conf: conf, Context: map[string]any{
		"taskid": OwnTask, "componentid": component,
		"task->component":          map[string]string{"1": source, "2": component, "3": "next"},
		"streams":                  []string{"default"},
		"stream->outputfields":     map[string][]string{"default": {"message"}},
		"stream->target->grouping": map[string]any{"default": map[string]any{"next": map[string]string{"type": "SHUFFLE"}}},
		"source->stream->grouping": map[string]any{source: map[string]any{"default": map[string]string{"type": "SHUFFLE"}}},
		"source->stream->fields":   map[string]any{source: map[string][]string{"default": fields}},
	}}
}

// Append appends the handshake as a message.
func (h Handshake) Append(dst []byte) ([]byte, error) {
	text, err := json.Marshal(map[string]any{"pidDir": h.PIDDir, "context": h.Context, "conf": h.Conf})
	if err != nil {
		return dst, fmt.Errorf("the configuration of the handshake: %w", err)
	}
	return end(append(dst, text...)), nil
}

// AppendTuple appends a tuple; values are its JSON, brackets included.
func AppendTuple(dst []byte, id, component string, task int, values []byte) []byte {
	dst = appendText(append(dst, `{"comp":`...), component)
	dst = append(append(dst, `,"tuple":`...), values...)
	dst = strconv.AppendInt(append(dst, `,"task":`...), int64(task), 10)
	dst = appendText(append(dst, `,"stream":"default","id":`...), id)
	return end(append(dst, '}'))
}

// AppendHeartbeat appends a heartbeat.
func AppendHeartbeat(dst []byte, id string) []byte {
	dst = append(dst, `{"comp":null,"tuple":[],"task":-1,"stream":"__heartbeat","id":`...)
	return end(append(appendText(dst, id), '}'))
}

// AppendTaskIDs appends the answer to an emit.
func AppendTaskIDs(dst []byte) []byte {
	return end(append(strconv.AppendInt(append(dst, '['), nextTask, 10), ']'))
}

func end(dst []byte) []byte { return append(dst, "\nend\n"...) }

func appendText(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("penstock: BUG: a string that is no JSON: " + err.Error())
	}
	return append(dst, text...)
}
