package retry

import (
	"context"
	"log/slog"
	"strconv"
	"time"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	AttemptStarted EventKind = iota + 1 // an attempt begins
	AttemptFailed                       // an attempt has failed; the next one begins after Wait
	// Waiting means that Poll calls the probe again after Wait, because the probe returned
	// ErrNotReady. With Options.WaitFirst, Poll also waits before the first call.
	Waiting
	Succeeded // an attempt has succeeded, which ends the call
	Stopped   // the call has failed; Stop is the reason
)

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	names := [...]string{AttemptStarted: "attempt started", AttemptFailed: "attempt failed",
		Waiting: "waiting", Succeeded: "succeeded", Stopped: "stopped"}
	if k >= AttemptStarted && int(k) < len(names) {
		return names[k]
	}
	return "event " + strconv.Itoa(int(k))
}

// Event is a step of a call.
type Event struct {
	Kind    EventKind
	Attempt Attempt       // Stopped: Number is the number of attempts made
	Action  Action        // AttemptFailed: how the failure is handled
	Wait    time.Duration // AttemptFailed, Waiting: until the next attempt
	Elapsed time.Duration // time since the call
	Err     error         // AttemptFailed, Waiting, Stopped: the failure; nil before a first poll
	Stop    error         // Stopped: the reason, as in Error.Stop
}

// LogTo returns a hook for Options.OnEvent that writes to log. Failures, and successes after more
// than one attempt, have level Info. Stops have level Warn. The attribute "name" is the given name
// of the operation. The log's handler gets the context of the attempt.
func LogTo(log *slog.Logger, name string) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		switch {
		case e.Kind == AttemptFailed:
			log.LogAttrs(ctx, slog.LevelInfo, "attempt failed", slog.String("name", name),
				slog.Int("attempt", e.Attempt.Number), slog.Duration("wait", e.Wait),
				slog.Any("err", e.Err))
		case e.Kind == Stopped:
			log.LogAttrs(ctx, slog.LevelWarn, "retry stopped", slog.String("name", name),
				slog.Int("attempts", e.Attempt.Number), slog.Duration("elapsed", e.Elapsed),
				slog.Any("reason", e.Stop), slog.Any("err", e.Err))
		case e.Kind == Succeeded && e.Attempt.Number > 1:
			log.LogAttrs(ctx, slog.LevelInfo, "succeeded after retries", slog.String("name", name),
				slog.Int("attempts", e.Attempt.Number), slog.Duration("elapsed", e.Elapsed))
		}
	}
}
