package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/penstock-io/penstock/flow/control"
)

// Writer writes a trace. It is not safe for concurrent use: the machine's owner calls it. Its first error stays, and
// what comes after it is not written; Close returns it.
type Writer struct {
	w   *bufio.Writer
	enc *json.Encoder
	err error
}

// NewWriter begins a trace of a machine made with c. It refuses a config that could not be read back.
func NewWriter(w io.Writer, c control.Config) (*Writer, error) {
	h, err := headerOf(&c)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriterSize(w, 64<<10)
	t := &Writer{w: buf, enc: json.NewEncoder(buf)}
	t.enc.SetEscapeHTML(false)
	if err := t.enc.Encode(h); err != nil {
		return nil, fmt.Errorf("trace: write its header: %w", err)
	}
	return t, nil
}

// Event writes an event and the commands that Machine.Step answered, before either is changed.
func (t *Writer) Event(e *control.Event, do []control.Command) {
	if t.err != nil {
		return
	}
	if err := t.enc.Encode(lineOf(e, do)); err != nil {
		t.err = fmt.Errorf("trace: write an event: %w", err)
	}
}

// Close writes what is buffered and returns the first error. It does not close the file.
func (t *Writer) Close() error {
	if err := t.w.Flush(); t.err == nil && err != nil {
		t.err = fmt.Errorf("trace: write the end: %w", err)
	}
	return t.err
}

// Replayed is what a replay found.
type Replayed struct {
	Events, Commands int
	Torn             bool // the last line is not whole: the writer was killed
	Status           control.Status
}

// DiffersError is the first place where the machine did something else than the trace says.
type DiffersError struct {
	Line      int
	Got, Want string // the commands, as the trace would have them
}

// Error names the line and both sides.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("line %d: the machine did %s, and the trace says %s", e.Line, e.Got, e.Want)
}

// maxLine bounds a line of a trace.
const maxLine = 16 << 20

// Replay feeds the events of a trace to a machine of its own and compares every command. An error is a DiffersError
// or says in which line the trace is broken.
func Replay(r io.Reader) (Replayed, error) {
	var done Replayed
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	if !in.Scan() {
		return done, errors.Join(errors.New("is empty"), in.Err())
	}
	var h header
	if err := strict(in.Bytes(), &h); err != nil {
		return done, fmt.Errorf("line 1: is no header of a trace: %w", err)
	}
	c, err := h.config()
	if err != nil {
		return done, fmt.Errorf("line 1: %w", err)
	}
	m, err := control.New(c)
	if err != nil {
		return done, fmt.Errorf("line 1: %w", err)
	}
	var cmds []control.Command
	for n := 2; in.Scan(); n++ {
		var l line
		if err := strict(in.Bytes(), &l); err != nil {
			if !in.Scan() && in.Err() == nil {
				done.Torn = true
				break
			}
			return done, fmt.Errorf("line %d: %w", n, err)
		}
		e, err := l.event()
		if err != nil {
			return done, fmt.Errorf("line %d: %w", n, err)
		}
		cmds = m.Step(e, cmds[:0])
		if got := lineOf(&e, cmds).Do; !same(got, l.Do) {
			return done, &DiffersError{Line: n, Got: text(got), Want: text(l.Do)}
		}
		done.Events++
		done.Commands += len(cmds)
	}
	done.Status = m.Status()
	return done, in.Err()
}

func strict(text []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(to)
}

func same(a, b []command) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func text(c []command) string {
	if len(c) == 0 {
		return "nothing"
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
