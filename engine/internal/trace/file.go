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

// The bounds of a File beside its size.
const (
	MaxBehind  = 4 << 20     // bytes that may wait for the disk; more: the trace ends
	flushBytes = 64 << 10    // as many are written at once
	flushEvery = time.Second // and what there is, so often
	lineMost   = 1 << 20     // bytes of one line; more: the trace ends
	endMost    = 1 << 10     // bytes kept free for the last line
)

// Previous is what the trace of the run before is called, behind its own name.
const Previous = ".1"

// Options of a File.
type Options struct {
	Max   int64 // bytes; then the trace ends. 0 or less: no bound
	About About
	Log   *slog.Logger // hears once why the trace ended early; nil: nobody does
}

// File is the trace of a machine that is at work. Event only appends to memory, and Run writes that
// out: the flow never waits for the disk. Where the disk cannot keep up, or the bound is reached,
// the trace ends with a line that says so, and nothing else changes. A trace cannot go on in a
// second file: a replay needs everything from the machine's first event.
type File struct {
	dir  vfs.Dir
	file vfs.File
	path string
	o    Options
	wake chan struct{} // holds one: there is enough to write

	mu     sync.Mutex // guards what follows; never held while the disk is asked
	buf    []byte     // to be written
	taken  int64      // bytes ever put into buf
	now    time.Duration
	over   bool   // no event is taken any more
	early  string // why the trace ended before its route; "" once that was said
	closed bool

	spare  []byte // Run's and Close's, as is what follows
	broken bool   // a write has failed
}

// Create begins a trace at path, 0600, of a machine made with c; missing folders are made (0700).
// The trace of the run before becomes path.1. What stands there and is no trace is not touched:
// that is an error.
func Create(disk vfs.FS, path string, c control.Config, o Options) (*File, error) {
	first, err := head(&c, &o.About)
	if err != nil {
		return nil, err
	}
	dir, err := disk.MakeDir(filepath.Dir(path), 0o700)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	t := &File{dir: dir, path: path, o: o, wake: make(chan struct{}, 1), buf: first, taken: int64(len(first))}
	name := filepath.Base(path)
	if err = t.rotate(name); err == nil {
		t.file, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trace %s: %w", path, err), dir.Close())
	}
	return t, nil
}

// rotate moves the trace of the run before out of the way.
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

// magic is how every trace begins.
var magic = []byte(`{"penstock_trace":`)

// Begins says whether a file that begins with text is a trace.
func Begins(text []byte) bool { return bytes.HasPrefix(text, magic) }

// ours says whether name is free, or a trace.
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
	if n == 0 && errors.Is(err, io.EOF) { // made, and killed before the first write
		return closeErr
	}
	if !bytes.HasPrefix(magic, begin[:n]) {
		return fmt.Errorf("%s is no trace and would be moved away; name another file", name)
	}
	return closeErr
}

// Event notes an event and the commands that Machine.Step answered; name is that of the lane, on
// LaneUp. It never blocks.
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
		why = fmt.Sprintf("its bound of %d bytes is reached", t.o.Max)
	case len(t.buf) > MaxBehind:
		why = fmt.Sprintf("%d bytes wait for the disk, which cannot keep up", before)
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

// end takes no event any more. The caller holds mu.
func (t *File) end(why string) {
	t.over = true
	t.buf = appendEnd(t.buf, int64(t.now), why)
	t.signal()
}

func (t *File) signal() {
	select {
	case t.wake <- struct{}{}:
	default: // one is on its way
	}
}

// Run writes out what Event noted, until ctx is done. It always returns nil: a trace that cannot be
// written stops nothing.
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

// write writes out what there is, and says once why the trace ends early.
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
		t.o.Log.Warn("the trace of the flow ends here; delivery goes on", "trace", t.path, "why", early)
	}
}

// Close ends the trace, writes out the rest and closes the file. Run has returned. It may be called
// twice.
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
