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

// failures keeps the last failure of each part of a route, such as a worker, and logs failures. A
// failure is logged at once if its text differs from the last text in the log for the same part.
// Otherwise it is logged at most once per failureEvery, with the number of repetitions. So a worker
// that fails often for one reason does not fill the log.
type failures struct {
	log *slog.Logger

	mu       sync.Mutex        // guards the fields below
	of       map[part]*failure // parts that have failed
	dead     failure           // dead letters that are not in the log yet
	deadFile string
}

// part is a part of a route that may fail: a worker, a processor, or another one, such as
// "checkpoint".
type part struct {
	name   string
	worker bool
}

type failure struct {
	text   string
	at     time.Time // of the last failure; zero if the part has worked since
	logged time.Time
	more   int // repetitions since the text was logged
}

const (
	failureEvery = 10 * time.Second
	failureText  = 300 // bytes of an error that are compared and shown
)

// recordFailure records a failure of a part. due reports whether the caller must log the failure:
// its text differs from that of the last log line about the same part, or this line is older than
// failureEvery. times is the number of failures of the part since that line, including this one.
func (f *failures) recordFailure(p part, text string) (times int, due bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.of[p]
	if seen == nil {
		seen = &failure{}
		f.of[p] = seen
	}
	seen.more++
	seen.at = now
	if seen.text == text && now.Sub(seen.logged) < failureEvery {
		return seen.more, false
	}
	times = seen.more
	*seen = failure{text: text, at: now, logged: now}
	return times, true
}

// recovered notes that a part works.
func (f *failures) recovered(p part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seen := f.of[p]; seen != nil {
		seen.at = time.Time{}
	}
}

// failed notes and logs a failed attempt. The sender's event loop calls it.
func (f *failures) failed(_ flow.Item[*stream.Batch], e flow.Failure) {
	text := stream.MaskURLs(e.Err.Error())
	if len(text) > failureText {
		text = text[:failureText] + "..."
	}
	times, due := f.recordFailure(part{e.Lane, true}, text)
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

// latest returns the latest failure with the name of its part. It omits parts that have recovered,
// and returns "" if no other part has failed.
func (f *failures) latest() (text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at time.Time
	for p, seen := range f.of {
		if seen.at.After(at) {
			text, at = p.name+": "+seen.text, seen.at
		}
	}
	return text
}

// latestOf returns the latest failure of a worker, without its name. It returns "" if the worker
// has not failed, or has recovered.
func (f *failures) latestOf(worker string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seen := f.of[part{worker, true}]; seen != nil && !seen.at.IsZero() {
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
