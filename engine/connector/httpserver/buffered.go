package httpserver

import (
	"context"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/stream"
)

// OpenBuffer implements stream.BufferingOptions.
func (o *Options) OpenBuffer(ctx context.Context, stateDir string) (stream.OpenBuffer, error) {
	return buffer.Inspect(ctx, o.Ack, o.Buffer, stateDir)
}
