package child

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/rate"
)

const (
	logBurst      = 20   // lines that may be logged at once
	logRate       = 5    // lines per second beyond the burst
	maxLogLine    = 1000 // bytes of a line that are logged
	maxStderrTail = 300  // last bytes of the output, which an ExitError quotes
)

// logWriter receives a child's standard error. It logs the lines at a limited rate, counts those
// that it omits, and keeps the end of the output. Write, flush and last may be called concurrently.
type logWriter struct {
	log   *slog.Logger
	attrs []any
	began time.Time

	mu         sync.Mutex // guards the fields below
	line       []byte     // the unfinished line, at most maxLogLine bytes
	long       bool       // the line was truncated; its rest is discarded
	tail       []byte
	limit      rate.Bucket
	suppressed int
}

func newLogWriter(log *slog.Logger, attrs []any) *logWriter {
	return &logWriter{log: log, attrs: attrs, began: time.Now(),
		limit: rate.NewBucket(logRate, logBurst)}
}

// Write implements io.Writer. It never returns an error, because a child must not stop if its
// output cannot be logged.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.tail = append(w.tail, p[max(0, len(p)-maxStderrTail):]...)
	w.tail = w.tail[max(0, len(w.tail)-maxStderrTail):]
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
	w.unlock(lines, len(lines) > 0)
	return len(p), nil
}

// endLocked completes the current line. If the line is not blank and the rate limit allows it,
// endLocked appends the line to lines, which the caller logs. The caller holds w.mu.
func (w *logWriter) endLocked(lines []string) []string {
	text := string(bytes.TrimRight(w.line, "\r"))
	if w.long {
		text += "..."
	}
	w.line, w.long = w.line[:0], false
	if strings.TrimSpace(text) == "" {
		return lines
	}
	if !w.limit.Take(time.Since(w.began), 1) {
		w.suppressed++
		return lines
	}
	return append(lines, text)
}

// unlock unlocks w.mu and logs lines. If all is set, it also logs the number of omitted lines.
func (w *logWriter) unlock(lines []string, all bool) {
	omitted := 0
	if all {
		omitted, w.suppressed = w.suppressed, 0
	}
	w.mu.Unlock()
	if w.log == nil {
		return
	}
	if omitted > 0 {
		w.log.Warn("omitted lines of a child's standard error",
			append([]any{"lines", omitted}, w.attrs...)...)
	}
	for _, text := range lines {
		w.log.Warn("child wrote to standard error", append([]any{"text", text}, w.attrs...)...)
	}
}

// flush logs an unterminated last line and the number of omitted lines.
func (w *logWriter) flush() {
	w.mu.Lock()
	var lines []string
	if len(w.line) > 0 {
		lines = w.endLocked(nil)
	}
	w.unlock(lines, true)
}

// last returns the end of the child's standard error without surrounding white space.
func (w *logWriter) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(w.tail), "\uFFFD"))
}

// say logs a problem with the child, such as limits that could not be set.
func (w *logWriter) say(what string, err error) {
	if w.log != nil {
		w.log.Warn(what, append([]any{"error", err}, w.attrs...)...)
	}
}
