package live

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Limits of a Log.
const (
	maxLogLines = 400
	maxLogText  = 1024 // maximum size of a message or of the value of an attribute
)

// Line is one record of a log.
type Line struct {
	Number  uint64      `json:"n"` // from 1, without gaps
	At      time.Time   `json:"at"`
	Level   string      `json:"level"`
	Message string      `json:"message"`
	Attrs   [][2]string `json:"attrs,omitempty"`
}

// Log keeps the last lines of a log. The zero value is empty. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex // guards the fields below
	lines [maxLogLines]Line
	count uint64
}

// After returns the lines after line n that are still kept.
func (l *Log) After(n uint64) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := max(n, l.count-min(l.count, maxLogLines))
	out := []Line{}
	for ; from < l.count; from++ {
		out = append(out, l.lines[from%maxLogLines])
	}
	return out
}

func (l *Log) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line.Number = l.count + 1
	l.lines[l.count%maxLogLines] = line
	l.count++
}

// Handler returns a handler that adds each record to the Log and then passes it to next.
func (l *Log) Handler(next slog.Handler) slog.Handler { return &logHandler{Handler: next, log: l} }

type logHandler struct {
	slog.Handler
	log    *Log
	prefix string // prefix of the names of attributes: the open groups
	attrs  [][2]string
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	line := Line{At: r.Time.UTC(), Level: r.Level.String(), Message: cut(r.Message), Attrs: slices.Clone(h.attrs)}
	r.Attrs(func(a slog.Attr) bool {
		line.Attrs = h.flatten(line.Attrs, h.prefix, a)
		return true
	})
	h.log.add(line)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	out.Handler, out.attrs = h.Handler.WithAttrs(attrs), slices.Clone(h.attrs)
	for _, a := range attrs {
		out.attrs = h.flatten(out.attrs, h.prefix, a)
	}
	return &out
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	out := *h
	out.Handler = h.Handler.WithGroup(name)
	if name != "" {
		out.prefix += name + "."
	}
	return &out
}

func (h *logHandler) flatten(to [][2]string, prefix string, a slog.Attr) [][2]string {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, below := range a.Value.Group() {
			to = h.flatten(to, prefix, below)
		}
		return to
	}
	return append(to, [2]string{prefix + a.Key, cut(a.Value.String())})
}

// cut returns s, truncated if it is longer than maxLogText.
func cut(s string) string {
	if len(s) <= maxLogText {
		return s
	}
	return s[:maxLogText] + "…"
}
