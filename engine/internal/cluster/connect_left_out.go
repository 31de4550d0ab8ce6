//go:build no_nats

package cluster

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-io/penstock/engine/config"
)

// Connect returns an error.
func Connect(context.Context, *config.Cluster, *slog.Logger) (*Bucket, error) {
	return nil, errors.New("state.nats: this binary was built with the tag no_nats")
}
