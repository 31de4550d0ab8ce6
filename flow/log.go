package flow

import (
	"context"
	"log/slog"
	"strings"

	"github.com/penstock-io/penstock/flow/control"
)

// LogTo returns a hook for [Options.Failed] that logs every failed attempt to l, with the context
// of Run. Nil means slog.Default() at the time of the failure.
//
// The level is Error for a misconfigured lane, Debug for a throttled attempt, and Warn for all
// others. The attributes are lane, attempt, outcome, died (if true) and err.
func LogTo[T any](l *slog.Logger) func(ctx context.Context, it Item[T], f Failure) {
	return func(ctx context.Context, _ Item[T], f Failure) {
		to, level := l, slog.LevelWarn
		if to == nil {
			to = slog.Default()
		}
		switch f.Outcome {
		case control.Misconfigured:
			level = slog.LevelError
		case control.Throttled:
			level = slog.LevelDebug
		}
		if !to.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("lane", f.Lane), slog.Int("attempt", f.Number),
			slog.String("outcome", f.Outcome.String()),
		}
		if f.Died {
			attrs = append(attrs, slog.Bool("died", true))
		}
		if f.Err != nil {
			attrs = append(attrs, slog.Any("err", f.Err))
		}
		to.LogAttrs(ctx, level, "attempt failed", attrs...)
	}
}

// LogValue implements slog.LogValuer.
func (e *Throttled) LogValue() slog.Value { return logValue(e, slog.Duration("after", e.After)) }

// LogValue implements slog.LogValuer.
func (e *Rejected) LogValue() slog.Value { return logValue(e) }

// LogValue implements slog.LogValuer.
func (e *Misconfigured) LogValue() slog.Value { return logValue(e) }

// LogValue implements slog.LogValuer.
func (e *Died) LogValue() slog.Value { return logValue(e) }

// LogValue implements slog.LogValuer.
func (e *Split[T]) LogValue() slog.Value {
	return logValue(e, slog.Int("delivered", len(e.Done)), slog.Int("rest", len(e.Rest)),
		slog.Int("refused", len(e.Refused)))
}

// LogValue implements slog.LogValuer.
func (e *PanicError) LogValue() slog.Value {
	return logValue(e, slog.String("stack", string(e.Stack)))
}

// logValue returns a group of attrs and of the first line of err, without a stack.
func logValue(err error, attrs ...slog.Attr) slog.Value {
	msg, _, _ := strings.Cut(err.Error(), "\n")
	return slog.GroupValue(append([]slog.Attr{slog.String("msg", msg)}, attrs...)...)
}
