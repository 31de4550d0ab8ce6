package connectortest

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/vfs"
)

// Quiet is a penstock.Host for a synctest bubble, in which a goroutine that watches files would stop time: it runs only what the
// test wants, and ends none of it. It keeps what is logged and counted, and is safe for concurrent use.
type Quiet struct {
	files vfs.FS
	log   *slog.Logger
	runs  func(name string) bool

	mu     sync.Mutex // guards what follows
	counts map[string]int64
	lines  strings.Builder // of the log, from Info on
}

// NewQuiet returns a host over a file system, of whose goroutines only those run that runs says yes to. The log goes to also, too;
// nil: to nobody else.
func NewQuiet(files vfs.FS, also io.Writer, runs func(name string) bool) *Quiet {
	h := &Quiet{files: files, runs: runs, counts: make(map[string]int64)}
	var w io.Writer = logLines{h}
	if also != nil {
		w = io.MultiWriter(also, w)
	}
	h.log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // a bubble's times tell nothing
		}
		return a
	}}))
	return h
}

// Log implements penstock.Host.
func (h *Quiet) Log() *slog.Logger { return h.log }

// FS implements penstock.Host.
func (h *Quiet) FS() vfs.FS { return h.files }

// Go implements penstock.Host.
func (h *Quiet) Go(name string, run func(context.Context) error) {
	if h.runs(name) {
		go func() { _ = run(context.Background()) }()
	}
}

// Count implements penstock.Host.
func (h *Quiet) Count(name string, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[name] += n
}

// Counted returns what was counted under name.
func (h *Quiet) Counted(name string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[name]
}

// Logged returns the log's lines so far, without their times.
func (h *Quiet) Logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines.String()
}

// logLines writes into a host's lines.
type logLines struct{ h *Quiet }

func (l logLines) Write(p []byte) (int, error) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.lines.Write(p)
}
