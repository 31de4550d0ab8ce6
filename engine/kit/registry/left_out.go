//go:build no_nats

package registry

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
)

var errLeftOut = errors.New("registry: this binary was built with the tag no_nats")

// Announce fails, because this binary has no client of NATS.
func Announce(
	context.Context, natsaccess.Options, string, string, func() bool, *slog.Logger,
) error {
	return errLeftOut
}

// Directory cannot be opened in this binary.
type Directory struct{}

// Open fails, because this binary has no client of NATS.
func Open(natsaccess.Options, string, *slog.Logger) (*Directory, error) { return nil, errLeftOut }

// Ask fails.
func (*Directory) Ask(context.Context) ([]string, error) { return nil, errLeftOut }

// Close does nothing.
func (*Directory) Close() {}
