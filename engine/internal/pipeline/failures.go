package pipeline

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

// failures keeps the last failure of each worker and processor, and logs failures. A failure is
// logged at once if its text differs from the last text in the log for the same worker or
// processor. Otherwise it is logged at most once per failureEvery, with the number of repetitions.
// So a worker that fails often for one reason does not fill the log.
type failures struct {
	log *slog.Logger

	mu       sync.Mutex          // guards the fields below
	by       map[string]*failure // by worker or processor
	last     string
	dead     failure // dead letters that are not in the log yet
	deadFile string
}

type failure struct {
	text   string
	logged time.Time
	more   int // repetitions since the text was logged
}

const (
	failureEvery = 10 * time.Second
	failureText  = 300 // bytes of an error that are compared and shown
)

// recordFailure records a failure of a worker or processor, which is named by the first argument.
// due reports whether the caller must log the failure: its text differs from that of the last log
// line about the same worker or processor, or this line is older than failureEvery. times is the
// number of its failures since that line, including this one.
func (f *failures) recordFailure(who, text string) (times int, due bool) {
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

// failed notes and logs a failed attempt. The sender's event loop calls it.
func (f *failures) failed(_ flow.Item[*stream.Batch], e flow.Failure) {
	text := stream.MaskURLs(e.Err.Error())
	if len(text) > failureText {
		text = text[:failureText] + "..."
	}
	times, due := f.recordFailure(e.Lane, text)
	if !due {
		return
	}
	level := slog.LevelWarn
	if e.Outcome == control.Misconfigured {
		level = slog.LevelError
	}
	f.log.Log(context.Background(), level, "batch not delivered; retrying",
		"worker", e.Lane, "attempt", e.Number, "times", times, "error", text)
}

// countDeadLetters counts new dead letters, and logs their number at most once per failureEvery. A
// later call of reportDead logs the rest.
func (f *failures) countDeadLetters(letters []stream.DeadLetter, path string) {
	f.mu.Lock()
	f.dead.more += len(letters)
	f.dead.text = letters[len(letters)-1].Reason
	f.deadFile = path
	f.mu.Unlock()
	f.reportDead(false)
}

// reportDead logs the number of dead letters that are not in the log yet. If less than failureEvery
// has passed since the last such line, it logs nothing, except at the end of a route. The dead
// letters themselves contain the details.
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
		f.log.Warn("records were refused and are kept as dead letters", "records", dead.more,
			"file", path, "latest_reason", dead.text)
	}
}

// latest returns the text of the last failure, or "" if there was none.
func (f *failures) latest() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// latestOf returns the latest failure of a worker, without its name. It returns "" if there is none.
func (f *failures) latestOf(worker string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seen := f.by[worker]; seen != nil {
		return seen.text
	}
	return ""
}

// firstLine returns the first line of an error, without a stack trace. For nil it returns "".
func firstLine(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
