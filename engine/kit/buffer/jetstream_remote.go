//go:build !no_nats

package buffer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/stream"
)

const (
	// remotePause is the wait between attempts while the servers do not respond.
	remotePause = time.Second
	// envelopeSlack is the maximum size of an envelope without its records: its header, its keys,
	// and the list of record ends.
	envelopeSlack = 64<<10 + envelopeRecords*4
)

// openRemote opens or creates the stream of the option nats.
func openRemote(ctx context.Context, o Options, log *slog.Logger) (Store, error) {
	j := &jetStream{subject: "penstock-buffer." + o.NATS.Stream, log: log}
	err := j.connectRemote(ctx, o)
	if err != nil {
		err = fmt.Errorf("buffer.nats %s: stream %q: %w", o.NATS.URL, o.NATS.Stream, err)
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *jetStream) connectRemote(ctx context.Context, o Options) (err error) {
	if j.conn, err = o.NATS.Connect("buffer "+o.NATS.Stream, false, j.log); err != nil {
		return err
	}
	j.closed = natsaccess.Closed(j.conn)
	need := o.largestEnvelope()
	if have := stream.Size(j.conn.MaxPayload()); have < need {
		return fmt.Errorf("the servers take messages of at most %v, want %v: raise max_payload of the "+
			"servers, or lower max_record", have, need)
	}
	if j.js, err = jetstream.New(j.conn, jetstream.WithDefaultTimeout(callTime)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	j.stream, err = j.js.Stream(ctx, o.NATS.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		replicas := cmp.Or(o.NATS.Replicas, defaultReplicas)
		config := streamConfig(o.NATS.Stream, j.subject, o, replicas)
		if j.stream, err = j.js.CreateStream(ctx, config); err != nil {
			return fmt.Errorf("create it with %d replicas: %w", replicas, err)
		}
	}
	if err != nil {
		return err
	}
	info, err := j.stream.Info(ctx)
	if err != nil {
		return err
	}
	return checkStream(&info.Config, j.subject, o)
}

// watch implements watcher.
func (j *jetStream) watch(ctx context.Context) error {
	select {
	case err := <-j.closed:
		return fmt.Errorf("buffer.nats: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// largestEnvelope returns the size of an envelope that the servers must accept.
func (o *Options) largestEnvelope() stream.Size {
	return envelopeBytes + o.maxRecord + envelopeSlack
}

// checkStream returns an error if the existing stream is not suitable for a buffer. For example,
// the stream deletes messages by itself, or it does not allow the buffer to delete messages.
func checkStream(c *jetstream.StreamConfig, subject string, o Options) error {
	refused := func(property string, value any) error {
		const text = "it cannot be a buffer: it has %s %v; name another one, which is created"
		return fmt.Errorf(text, property, value)
	}
	switch {
	case len(c.Subjects) != 1 || c.Subjects[0] != subject:
		return refused("the subjects", strings.Join(c.Subjects, ", "))
	case c.Retention != jetstream.LimitsPolicy:
		return refused("the retention", c.Retention)
	case c.Discard != jetstream.DiscardNew:
		return refused("the policy", c.Discard)
	case c.MaxAge > 0:
		return refused("a max_age of", c.MaxAge)
	case c.MaxMsgs > 0:
		return refused("a max_msgs of", c.MaxMsgs)
	case c.MaxMsgsPerSubject > 0:
		return refused("a max_msgs_per_subject of", c.MaxMsgsPerSubject)
	case c.MaxBytes > 0 && c.MaxBytes < int64(o.Bytes):
		return refused("max_bytes below buffer.bytes:", stream.Size(c.MaxBytes))
	case c.Storage != jetstream.FileStorage:
		return refused("the storage", c.Storage)
	case c.MaxMsgSize > 0 && stream.Size(c.MaxMsgSize) < o.largestEnvelope():
		return refused("a max_msg_size below the longest envelope:", stream.Size(c.MaxMsgSize))
	case c.DenyPurge:
		return refused("deny_purge", c.DenyPurge)
	case c.NoAck:
		return refused("no_ack", c.NoAck)
	case c.AllowDirect:
		return refused("allow_direct", c.AllowDirect)
	case o.NATS.Replicas > 0 && c.Replicas != o.NATS.Replicas:
		return refused("replicas", c.Replicas)
	}
	return nil
}
