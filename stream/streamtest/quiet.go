package streamtest

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/vfs"
)

// Quiet is a stream.Host for a synctest bubble. A goroutine that watches files would stop the
// bubble's time, so Quiet runs only the goroutines that the test selects. It records logs and
// counts, and is safe for concurrent use.
type Quiet struct {
	files vfs.FS
	log   *slog.Logger
	runs  func(name string) bool
	group sync.WaitGroup

	tally
	routes

	mu     sync.Mutex      // guards the fields below
	ctx    context.Context // of the goroutines; nil before the first one and after Stop
	cancel context.CancelFunc
	dir    vfs.Dir         // nil until State opens it
	lines  strings.Builder // of the log, from Info on
}

// NewQuiet returns a host over the given file system. The host starts a goroutine only if
// runs(name) is true for the goroutine's name. If also is not nil, the log is written to it, too.
func NewQuiet(files vfs.FS, also io.Writer, runs func(name string) bool) *Quiet {
	h := &Quiet{files: files, runs: runs}
	var w io.Writer = logLines{h}
	if also != nil {
		w = io.MultiWriter(also, w)
	}
	h.log = slog.New(slog.NewTextHandler(w,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // times in a bubble are meaningless
			}
			return a
		}}))
	return h
}

// Log implements stream.Host.
func (h *Quiet) Log() *slog.Logger { return h.log }

// FS implements stream.Host.
func (h *Quiet) FS() vfs.FS { return h.files }

// Go implements stream.Host.
func (h *Quiet) Go(name string, run func(context.Context) error) {
	if !h.runs(name) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancel(context.Background())
	}
	ctx := h.ctx
	h.group.Go(func() { _ = run(ctx) })
}

// Stop ends the context of all goroutines and waits for them, like the end of a process. The method
// Go may be called again after Stop.
func (h *Quiet) Stop() {
	h.mu.Lock()
	if h.cancel != nil {
		h.cancel()
	}
	h.ctx, h.cancel = nil, nil
	h.mu.Unlock()
	h.group.Wait()
}

// Fault implements stream.Host.
func (h *Quiet) Fault(err error) {
	h.log.Error("fault", "error", err)
	h.addFault(err)
}

// State implements stream.SourceHost: the directory /state of the host's file system.
func (h *Quiet) State() (vfs.Dir, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == nil {
		dir, err := h.files.MakeDir("/state", 0o700)
		if err != nil {
			return nil, err
		}
		h.dir = dir
	}
	return h.dir, nil
}

// Logged returns the log lines so far, from level Info on and without their times.
func (h *Quiet) Logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines.String()
}

// logLines writes to a host's lines.
type logLines struct{ h *Quiet }

func (l logLines) Write(p []byte) (int, error) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.lines.Write(p)
}
