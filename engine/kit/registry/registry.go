//go:build !no_nats

package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/retry"
)

// answerTime is the maximum time for which Ask waits for the answers of workers.
const answerTime = 300 * time.Millisecond

// reconnectBackoff is the wait before a closed connection is replaced.
var reconnectBackoff = backoff.Exponential(time.Second, 2, 5*time.Second).Equal()

// Announce answers the requests on a subject with an address, until ctx is done. It does not answer
// while ready returns false. It replaces a connection that the NATS library has closed permanently,
// for example because the servers' max_payload was lowered.
func Announce(
	ctx context.Context, o natsaccess.Options, subject, address string, ready func() bool,
	log *slog.Logger,
) error {
	closed := false // the library has closed a connection
	err := retry.Do(ctx, func(ctx context.Context) error {
		err := announce(ctx, o, subject, address, ready, log)
		closed = closed || errors.Is(err, nats.ErrConnectionClosed)
		if err != nil && closed {
			log.Warn("connection to the registry closed; connecting again", "error", err)
		}
		return err
	}, retry.Options{Policy: reconnectBackoff, MaxAttempts: -1, Classify: func(error) retry.Action {
		if closed {
			return retry.Retry
		}
		return retry.Fail
	}})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// announce does the work of Announce on one connection.
func announce(
	ctx context.Context, o natsaccess.Options, subject, address string, ready func() bool,
	log *slog.Logger,
) error {
	conn, err := o.Connect("worker "+address, true, log)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	defer conn.Close()
	closed := natsaccess.Closed(conn)
	questions := make(chan *nats.Msg, questionsWaiting)
	sub, err := conn.ChanSubscribe(subject, questions)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	for {
		select {
		case m := <-questions:
			if ready() {
				_ = m.Respond([]byte(address)) // if this fails, the sender repeats its request
			}
		case err := <-closed:
			return fmt.Errorf("register: %w", err)
		case <-ctx.Done():
			return sub.Unsubscribe()
		}
	}
}

// questionsWaiting bounds the requests that wait for an answer. More requests are dropped.
const questionsWaiting = 64

// Directory finds the workers that answer on a subject. It must be used by one goroutine.
type Directory struct {
	conn    *nats.Conn
	connect func() (*nats.Conn, error)
	subject string
}

// Open connects to the NATS servers of a registry.
func Open(o natsaccess.Options, subject string, log *slog.Logger) (*Directory, error) {
	connect := func() (*nats.Conn, error) { return o.Connect("workers of "+subject, false, log) }
	conn, err := connect()
	if err != nil {
		return nil, err
	}
	return &Directory{conn, connect, subject}, nil
}

// Ask returns the addresses of the workers that answer within answerTime, sorted, and at most
// maxWorkers of them. It first replaces a connection that the NATS library has closed permanently.
func (d *Directory) Ask(ctx context.Context) ([]string, error) {
	if d.conn.IsClosed() {
		conn, err := d.connect()
		if err != nil {
			return nil, err
		}
		d.conn = conn
	}
	inbox := nats.NewInbox()
	sub, err := d.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails if the connection is closed
	if err := d.conn.PublishRequest(d.subject, inbox, nil); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var found []string
	for len(found) < maxWorkers {
		m, err := sub.NextMsgWithContext(wait)
		if err == nil {
			if n := len(m.Data); n > 0 && n <= maxAddress {
				found = append(found, string(m.Data))
			}
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, nats.ErrNoResponders) || wait.Err() != nil && d.conn.IsConnected() {
			break
		}
		return nil, fmt.Errorf("ask for workers: %w", err)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// The limits on answers.
const (
	maxWorkers = 1000
	maxAddress = 300 // bytes
)

// Close closes the connection.
func (d *Directory) Close() { d.conn.Close() }
