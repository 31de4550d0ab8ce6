package nats

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// requestError adds the server and a remedy to the error of a request about a stream.
func (c *client) requestError(stream string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf(
			"stream %q does not exist at NATS %s: create it, or correct its name: %w", stream,
			c.o.URL, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf(
			"NATS %s has no JetStream for this user: enable it for the server and the account: %w",
			c.o.URL, err)
	case errors.Is(err, jetstream.ErrMaximumConsumersLimit):
		return fmt.Errorf(
			"stream %q has as many consumers as it allows: raise max_consumers, or delete one: %w",
			stream, err)
	case errors.Is(err, natsgo.ErrNoResponders):
		return fmt.Errorf(
			"nobody answers for JetStream at NATS %s: enable it, or check domain: %w", c.o.URL,
			err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, natsgo.ErrTimeout):
		return fmt.Errorf("stream %q: no response from JetStream at NATS %s: %w", stream, c.o.URL,
			c.denials.explain(err))
	case errors.Is(err, natsgo.ErrConnectionClosed):
		return fmt.Errorf("stream %q: the connection to NATS %s is closed: %w", stream, c.o.URL,
			err)
	}
	return fmt.Errorf("stream %q: %w", stream, err)
}

// isFinal reports whether err means that a request will fail again, until an operator changes
// something or the route connects again.
func isFinal(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, natsgo.ErrConnectionClosed)
}
