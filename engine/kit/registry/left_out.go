//go:build no_nats

package registry

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
)

var errLeftOut = errors.New("registry: this binary was built with the tag no_nats")

// Announce returns an error, because this binary has no NATS client.
func Announce(
	context.Context, natsaccess.Options, string, string, func() bool, *slog.Logger,
) error {
	return errLeftOut
}

// Directory is not usable in this binary.
type Directory struct{}

// Open returns an error, because this binary has no NATS client.
func Open(natsaccess.Options, string, *slog.Logger) (*Directory, error) { return nil, errLeftOut }

// Ask returns an error, because this binary has no NATS client.
func (*Directory) Ask(context.Context) ([]string, error) { return nil, errLeftOut }

// Close does nothing.
func (*Directory) Close() {}
