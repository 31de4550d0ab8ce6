package limit

import "log/slog"

// LogValue implements slog.LogValuer. It returns a group of msg, reason and wait. An unknown wait
// is left out.
func (e *RefusedError) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("msg", e.Error()), slog.String("reason", e.Reason.String())}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return slog.GroupValue(attrs...)
}
