package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// About says where a trace comes from; all of it may be zero.
type About struct {
	Route   string    // "pipeline/route"
	Started time.Time // the moment from which Event.Now counts
	Program string    // version of the program
	Arch    string    // its GOARCH: a replay is exact on the same one
}

// Writer writes a trace. It is not safe for concurrent use: the machine's owner calls it. Its first
// error stays, and what comes after it is not written; Close returns it.
type Writer struct {
	w    *bufio.Writer
	line []byte
	err  error
}

// NewWriter begins a trace of a machine made with c. It refuses a config that could not be read
// back.
func NewWriter(w io.Writer, c control.Config, a About) (*Writer, error) {
	head, err := head(&c, &a)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriterSize(w, 64<<10)
	if _, err := buf.Write(head); err != nil {
		return nil, fmt.Errorf("trace: write its header: %w", err)
	}
	return &Writer{w: buf}, nil
}

// head is the first line.
func head(c *control.Config, a *About) ([]byte, error) {
	h, err := headerOf(c, a)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("trace: write its header: %w", err)
	}
	return append(line, '\n'), nil
}

// Event writes an event and the commands that Machine.Step answered, before either is changed.
func (t *Writer) Event(e *control.Event, do []control.Command) {
	if t.err != nil {
		return
	}
	t.line = appendLine(t.line[:0], e, do, "")
	if _, err := t.w.Write(t.line); err != nil {
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
