package retry

import (
	"context"
	"log/slog"
	"strconv"
	"time"
)

// EventKind is what happened in a sequence.
type EventKind uint8

// What happened.
const (
	AttemptStarted EventKind = iota + 1 // an attempt begins
	AttemptFailed                       // an attempt has failed; the next one begins after Wait
	Waiting                             // a poll got no result yet, or waits for its first turn; the next one is after Wait
	Succeeded                           // an attempt has succeeded: the end
	Stopped                             // there is no further attempt: the end; Stop says why
)

// String names the kind.
func (k EventKind) String() string {
	switch k {
	case AttemptStarted:
		return "attempt started"
	case AttemptFailed:
		return "attempt failed"
	case Waiting:
		return "waiting"
	case Succeeded:
		return "succeeded"
	case Stopped:
		return "stopped"
	}
	return "event " + strconv.Itoa(int(k))
}

// Event is one thing that happened in a sequence.
type Event struct {
	Kind    EventKind
	Attempt Attempt
	Action  Action        // AttemptFailed: what was decided
	Wait    time.Duration // AttemptFailed, Waiting: until the next attempt
	Elapsed time.Duration // since the call
	Err     error         // AttemptFailed, Waiting, Stopped: the failure; nil before a first poll
	Stop    error         // Stopped: why
}

// LogTo returns a hook for Retrier.OnEvent that writes failures at level Info and stops at level Warn to log, with the
// given name as what is being retried. Starts and successes of first attempts are not worth a line; the success of
// a later one is.
func LogTo(log *slog.Logger, name string) func(Event) {
	return func(e Event) {
		// The hook has no context: what it logs concerns the call, not one attempt's deadline.
		ctx := context.Background()
		switch {
		case e.Kind == AttemptFailed:
			log.LogAttrs(ctx, slog.LevelInfo, "will try again", slog.String("name", name),
				slog.Int("attempt", e.Attempt.Number), slog.Duration("wait", e.Wait), slog.Any("err", e.Err))
		case e.Kind == Stopped:
			log.LogAttrs(ctx, slog.LevelWarn, "gave up", slog.String("name", name), slog.Int("attempts", e.Attempt.Number),
				slog.Duration("elapsed", e.Elapsed), slog.Any("reason", e.Stop), slog.Any("err", e.Err))
		case e.Kind == Succeeded && e.Attempt.Number > 1:
			log.LogAttrs(ctx, slog.LevelInfo, "succeeded after failures", slog.String("name", name),
				slog.Int("attempts", e.Attempt.Number), slog.Duration("elapsed", e.Elapsed))
		}
	}
}
