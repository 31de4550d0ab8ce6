package supervise

import (
	"context"
	"errors"
	"log/slog"
	"slices"
)

// LogTo returns a hook for [Spec.OnEvent] and [Options.OnEvent] that logs every event to l. Nil
// means slog.Default() at the time of the event.
//
// The levels are Error for a stuck child and an escalation, Warn for a failed child and a pause,
// and Debug for a child that was told to stop. All other events are Info. The attributes are
// supervisor, child, incarnation, ran, restart, delay and err.
func LogTo(l *slog.Logger) func(ctx context.Context, e Event) {
	return func(ctx context.Context, e Event) {
		to := l
		if to == nil {
			to = slog.Default()
		}
		level, msg := logLine(e)
		if !to.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{slog.String("supervisor", e.Supervisor)}
		if e.Child != "" {
			attrs = append(attrs, slog.String("child", e.Child))
		}
		if e.Incarnation > 0 {
			attrs = append(attrs, slog.Uint64("incarnation", e.Incarnation))
		}
		if e.Ran > 0 {
			attrs = append(attrs, slog.Duration("ran", e.Ran))
		}
		if e.Kind == Ended {
			attrs = append(attrs, slog.Bool("restart", e.Restart))
		}
		if e.Delay > 0 {
			attrs = append(attrs, slog.Duration("delay", e.Delay))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("err", e.Err))
		}
		to.LogAttrs(ctx, level, msg, attrs...)
	}
}

func logLine(e Event) (slog.Level, string) {
	switch e.Kind {
	case Started:
		return slog.LevelInfo, "child started"
	case Ended:
		if e.Err != nil && !repeatsItsStop(e.Err) {
			return slog.LevelWarn, "child failed"
		}
		return slog.LevelInfo, "child ended"
	case Stopping:
		return slog.LevelDebug, "child told to stop"
	case Stuck:
		return slog.LevelError, "child stuck"
	case Paused:
		return slog.LevelWarn, "restarts paused"
	case Resumed:
		return slog.LevelInfo, "restarts resumed"
	case Escalated:
		return slog.LevelError, "supervisor gave up"
	}
	return slog.LevelInfo, "supervisor event"
}

// repeatsItsStop reports whether err is not a failure: it only says that the child was told to stop
// or is done.
func repeatsItsStop(err error) bool {
	ends := []error{context.Canceled, ErrStop, ErrStopped, ErrRestarting, ErrRemoved}
	return slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) })
}
