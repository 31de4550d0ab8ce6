package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// About describes the origin of a trace. All fields are optional.
type About struct {
	Route   string    // "pipeline/route"
	Started time.Time // time to which Event.Now is relative
	Program string    // version of the program
	Arch    string    // GOARCH of the program; a replay is exact only on the same architecture
}

// Writer writes a trace. After the first error it writes nothing, and Close returns the error. It
// is not safe for concurrent use.
type Writer struct {
	w    *bufio.Writer
	line []byte
	err  error
}

// NewWriter writes the first line of a trace of a state machine with config c. It returns an error
// if a reader could not restore c from this line.
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

// head returns the first line of a trace, which has the configuration c and the origin a.
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

// Event writes an event, and the commands that Machine.Step has returned for it. The caller must
// not have modified the event or the commands.
func (t *Writer) Event(e *control.Event, do []control.Command) {
	if t.err != nil {
		return
	}
	t.line = appendLine(t.line[:0], e, do, "")
	if _, err := t.w.Write(t.line); err != nil {
		t.err = fmt.Errorf("trace: write an event: %w", err)
	}
}

// Close writes the buffered data and returns the first error. It does not close w.
func (t *Writer) Close() error {
	if err := t.w.Flush(); t.err == nil && err != nil {
		t.err = fmt.Errorf("trace: write the end: %w", err)
	}
	return t.err
}
