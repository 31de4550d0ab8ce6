package child

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	logBurst   = 20        // lines that are logged at once
	logRate    = 5         // lines a second beyond that
	maxLogLine = 1000      // bytes of a line that are logged
	maxSaid    = 300       // bytes of the end that an ExitError quotes
	logPeriod  = time.Hour // of an account that was never used: longer than any burst takes to come back
)

// logWriter takes what a child writes to standard error: whole lines into the log, so many a second
// at most, with how many were left out; and remembers the end. Write, flush and last may be called
// by several goroutines.
type logWriter struct {
	log   *slog.Logger
	attrs []any

	mu    sync.Mutex // guards what follows
	line  []byte     // begun, at most maxLogLine bytes
	long  bool       // the line was cut; its rest is thrown away
	tail  []byte
	room  float64 // lines that may be logged now
	at    time.Time
	muted int
}

func newLogWriter(log *slog.Logger, attrs []any) *logWriter {
	return &logWriter{log: log, attrs: attrs, room: logBurst, at: time.Now().Add(-logPeriod)}
}

// Write never fails: a log that cannot keep up must not stop the child.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.tail = append(w.tail, p[max(0, len(p)-maxSaid):]...)
	w.tail = w.tail[max(0, len(w.tail)-maxSaid):]
	var lines []string
	for rest := p; len(rest) > 0; {
		text, after, whole := bytes.Cut(rest, []byte("\n"))
		rest = after
		if n := maxLogLine - len(w.line); len(text) > n {
			text, w.long = text[:n], true
		}
		w.line = append(w.line, text...)
		if whole {
			lines = w.endLocked(lines)
		}
	}
	muted := w.takeMutedLocked(len(lines) > 0)
	w.mu.Unlock()
	w.put(lines, muted)
	return len(p), nil
}

// endLocked ends the begun line and appends it, if it may be logged.
func (w *logWriter) endLocked(lines []string) []string {
	text := string(bytes.TrimRight(w.line, "\r"))
	if w.long {
		text += "..."
	}
	w.line, w.long = w.line[:0], false
	if strings.TrimSpace(text) == "" {
		return lines
	}
	now := time.Now()
	w.room = min(logBurst, w.room+now.Sub(w.at).Seconds()*logRate)
	w.at = now
	if w.room < 1 {
		w.muted++
		return lines
	}
	w.room--
	return append(lines, text)
}

func (w *logWriter) takeMutedLocked(take bool) int {
	if !take {
		return 0
	}
	n := w.muted
	w.muted = 0
	return n
}

func (w *logWriter) put(lines []string, muted int) {
	if w.log == nil {
		return
	}
	if muted > 0 {
		w.log.Warn("lines of a child's standard error were left out", append([]any{"lines", muted}, w.attrs...)...)
	}
	for _, text := range lines {
		w.log.Warn("a child wrote to standard error", append([]any{"text", text}, w.attrs...)...)
	}
}

// flush logs what has been left: a last line without an end, and how many were left out.
func (w *logWriter) flush() {
	w.mu.Lock()
	var lines []string
	if len(w.line) > 0 {
		lines = w.endLocked(nil)
	}
	muted := w.takeMutedLocked(true)
	w.mu.Unlock()
	w.put(lines, muted)
}

// last is the end of what was written, without line ends around it.
func (w *logWriter) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(w.tail), "\uFFFD"))
}

// say logs what went wrong beside the child.
func (w *logWriter) say(what string, err error) {
	if w.log != nil {
		w.log.Warn(what, append([]any{"error", err}, w.attrs...)...)
	}
}
