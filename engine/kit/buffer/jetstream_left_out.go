//go:build no_nats

package buffer

import (
	"context"
	"errors"
	"log/slog"
)

// OpenStore returns an error, because this program was built without the embedded NATS server.
func OpenStore(context.Context, string, Options, *slog.Logger) (Store, error) {
	return nil, errors.New("ack: buffered: this binary was built with the tag no_nats")
}
