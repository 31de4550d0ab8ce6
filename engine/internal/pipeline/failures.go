package pipeline

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

// failures remembers the last failure of each worker and processor and logs it: the first of its
// text at once, the same again at most every failureEvery, with how many there were. A worker that
// fails fast must not fill the log.
type failures struct {
	log *slog.Logger

	mu       sync.Mutex          // guards what follows
	by       map[string]*failure // by worker or processor
	last     string
	dead     failure // of dead letters that were not logged
	deadFile string
}

type failure struct {
	text   string
	logged time.Time
	more   int // since it was logged
}

const (
	failureEvery = 10 * time.Second
	failureText  = 300 // bytes of an error that are compared and shown
)

// note takes a failure of one of the route's parts. due: it is to be logged, for it is new, or the
// same again for failureEvery; times is how often it came since it last was.
func (f *failures) note(who, text string) (times int, due bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.by[who]
	if seen == nil {
		seen = &failure{}
		f.by[who] = seen
	}
	seen.more++
	f.last = who + ": " + text
	if seen.text == text && now.Sub(seen.logged) < failureEvery {
		return seen.more, false
	}
	times = seen.more
	*seen = failure{text: text, logged: now}
	return times, true
}

// failed is called by the sender's loop with each attempt that did not deliver.
func (f *failures) failed(_ flow.Item[*stream.Batch], e flow.Failure) {
	text := stream.MaskURLs(e.Err.Error())
	if len(text) > failureText {
		text = text[:failureText] + "..."
	}
	times, due := f.note(e.Lane, text)
	if !due {
		return
	}
	level := slog.LevelWarn
	if e.Outcome == control.Misconfigured {
		level = slog.LevelError
	}
	f.log.Log(context.Background(), level, "not delivered; it will be sent again",
		"worker", e.Lane, "attempt", e.Number, "times", times, "error", text)
}

// buried counts new dead letters and logs them, at most every failureEvery. What it does not log,
// reportDead does.
func (f *failures) buried(letters []deadletter.Letter, path string) {
	f.mu.Lock()
	f.dead.more += len(letters)
	f.dead.text = letters[len(letters)-1].Reason
	f.deadFile = path
	f.mu.Unlock()
	f.reportDead(false)
}

// reportDead logs the dead letters that were not logged yet, if failureEvery has passed since the
// last such line, or at the end of a route. The letters themselves have the rest.
func (f *failures) reportDead(atEnd bool) {
	now := time.Now()
	f.mu.Lock()
	dead, path := f.dead, f.deadFile
	due := dead.more > 0 && (atEnd || now.Sub(dead.logged) >= failureEvery)
	if due {
		f.dead = failure{logged: now}
	}
	f.mu.Unlock()
	if due {
		f.log.Warn("records were refused and are kept as dead letters", "records", dead.more, "file", path, "latest_reason", dead.text)
	}
}

// latest is the last failure in words; "" when there was none.
func (f *failures) latest() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// firstLine is an error without what follows its first line, such as a stack.
func firstLine(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
