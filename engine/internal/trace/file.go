package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/vfs"
)

// Limits of a File besides its size.
const (
	MaxBehind  = 4 << 20     // bytes that may wait for the disk; with more the trace ends
	flushBytes = 64 << 10    // bytes per write
	flushEvery = time.Second // interval of writes
	lineMost   = 1 << 20     // bytes of a line; with more the trace ends
	endMost    = 1 << 10     // bytes reserved for the last line
)

// Previous is appended to the file name of a trace when the next run begins.
const Previous = ".1"

// Options of a File.
type Options struct {
	Max   int64 // maximum size in bytes; 0 or less means no limit
	About About
	Log   *slog.Logger // logs the reason if the trace ends early; may be nil
}

// File is the trace of a running flow control (control.Machine). Event appends only to memory, and
// Run writes to the disk. So flow control never waits for the disk.
//
// If the disk is too slow, or the maximum size is reached, the trace ends with a line that states
// the reason, and delivery continues. The trace cannot continue in a second file, because a replay
// needs all events from the start.
type File struct {
	dir  vfs.Dir
	file vfs.File
	path string
	o    Options
	wake chan struct{} // buffer of 1: there is enough data to write

	mu     sync.Mutex // guards the fields below; never held during I/O
	buf    []byte     // data to write
	taken  int64      // total number of bytes added to buf
	now    time.Duration
	over   bool   // the trace has ended; further events are ignored
	early  string // why the trace ended before its route; "" after that was logged
	closed bool

	spare  []byte // used by Run and Close only
	broken bool   // a write has failed
}

// Create creates a trace at path with mode 0600, for a flow control with config c. It creates
// missing directories with mode 0700. It renames the trace of the previous run to path.1. If path
// or path.1 exists and is not a trace, Create returns an error and changes neither of them.
func Create(disk vfs.FS, path string, c control.Config, o Options) (*File, error) {
	first, err := head(&c, &o.About)
	if err != nil {
		return nil, err
	}
	dir, err := disk.MakeDir(filepath.Dir(path), 0o700)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	t := &File{dir: dir, path: path, o: o, wake: make(chan struct{}, 1), buf: first,
		taken: int64(len(first))}
	name := filepath.Base(path)
	if err = t.rotate(name); err == nil {
		t.file, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trace %s: %w", path, err), dir.Close())
	}
	return t, nil
}

// rotate renames the trace of the previous run to NAME.1, if there is one.
func (t *File) rotate(name string) error {
	for _, n := range []string{name, name + Previous} {
		if err := t.ours(n); err != nil {
			return err
		}
	}
	err := t.dir.Rename(name, t.dir, name+Previous)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// magic is the beginning of every trace.
var magic = []byte(`{"penstock_trace":`)

// Begins reports whether text is the beginning of a trace.
func Begins(text []byte) bool { return bytes.HasPrefix(text, magic) }

// ours returns an error if the file name exists and is not a trace.
func (t *File) ours(name string) error {
	f, err := t.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	begin := make([]byte, len(magic))
	n, err := io.ReadFull(f, begin)
	closeErr := f.Close()
	// An empty file counts as a trace. A process may have created it and then have been killed
	// before it wrote to it.
	if n == 0 && errors.Is(err, io.EOF) {
		return closeErr
	}
	if !bytes.HasPrefix(magic, begin[:n]) {
		return fmt.Errorf("%s is not a trace, and would be moved away; choose another file", name)
	}
	return closeErr
}

// Event records an event, and the commands that Machine.Step has returned for it. If e is a LaneUp
// event, name is the name of the new lane (the place of a worker in the sender). Event never waits.
func (t *File) Event(e *control.Event, do []control.Command, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.now = e.Now
	before := len(t.buf)
	t.buf = appendLine(t.buf, e, do, name)
	line := int64(len(t.buf) - before)
	var why string
	switch {
	case t.o.Max > 0 && t.taken+line > t.o.Max-endMost:
		why = fmt.Sprintf("it has reached its limit of %d bytes", t.o.Max)
	case len(t.buf) > MaxBehind:
		why = fmt.Sprintf("%d bytes wait for the disk, which is too slow", before)
	case line > lineMost:
		why = fmt.Sprintf("one event takes %d bytes", line)
	}
	if why != "" {
		t.buf = t.buf[:before]
		t.early = why
		t.end(why)
		return
	}
	t.taken += line
	if len(t.buf) >= flushBytes {
		t.signal()
	}
}

// end ends the trace with a line that has the reason why. The caller holds t.mu.
func (t *File) end(why string) {
	t.over = true
	t.buf = appendEnd(t.buf, int64(t.now), why)
	t.signal()
}

func (t *File) signal() {
	select {
	case t.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Run writes recorded events to the disk until ctx is done. It always returns nil, because a failed
// trace must not stop the route.
func (t *File) Run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-tick.C:
		}
		t.write()
	}
}

// write writes the buffered events. If the trace has ended early, it also logs the reason, once.
func (t *File) write() {
	t.mu.Lock()
	t.buf, t.spare = t.spare[:0], t.buf
	early := t.early
	t.early = ""
	t.mu.Unlock()
	if t.broken || len(t.spare) == 0 {
		return
	}
	if _, err := t.file.Write(t.spare); err != nil {
		t.broken = true
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
		early = err.Error()
	}
	if early != "" && t.o.Log != nil {
		t.o.Log.Warn("the flow trace ends here; delivery continues", "trace", t.path,
			"why", early)
	}
}

// Close writes the end of the trace and closes the file. It must be called after Run has returned.
// It may be called twice.
func (t *File) Close() error {
	t.mu.Lock()
	again := t.closed
	t.closed = true
	if !t.over {
		t.end("the route ended")
	}
	t.mu.Unlock()
	if again {
		return nil
	}
	t.write()
	if err := errors.Join(t.file.Close(), t.dir.Close()); err != nil {
		return fmt.Errorf("trace %s: %w", t.path, err)
	}
	return nil
}
