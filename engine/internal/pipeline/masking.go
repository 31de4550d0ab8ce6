package pipeline

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock-io/penstock/stream"
)

// maskingHandler passes log records to a Handler, and masks the secrets of URLs in their messages
// and attributes.
type maskingHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h maskingHandler) Handle(ctx context.Context, r slog.Record) error {
	masked := slog.NewRecord(r.Time, r.Level, stream.MaskURLs(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(maskAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, masked)
}

// WithAttrs implements slog.Handler.
func (h maskingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return maskingHandler{h.Handler.WithAttrs(maskAttrs(attrs))}
}

// WithGroup implements slog.Handler.
func (h maskingHandler) WithGroup(name string) slog.Handler {
	return maskingHandler{h.Handler.WithGroup(name)}
}

func maskAttrs(attrs []slog.Attr) []slog.Attr {
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = maskAttr(a)
	}
	return masked
}

// maskAttr masks the secrets of URLs in strings, in groups, and in the text of other values
// (fmt.Sprint).
func maskAttr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(stream.MaskURLs(a.Value.String()))
	case slog.KindGroup:
		a.Value = slog.GroupValue(maskAttrs(a.Value.Group())...)
	case slog.KindAny:
		text := fmt.Sprint(a.Value.Any())
		if masked := stream.MaskURLs(text); masked != text {
			a.Value = slog.StringValue(masked)
		}
	}
	return a
}
