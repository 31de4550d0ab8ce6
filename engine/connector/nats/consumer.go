package nats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// openStream returns a stream and its state. It refuses a subject that the stream does not contain,
// unless the stream copies other streams (as a mirror, or with sources). An empty subject means all
// subjects.
func (c *client) openStream(
	ctx context.Context,
	name, subject string,
) (jetstream.Stream, *jetstream.StreamInfo, error) {
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, nil, c.requestError(name, err)
	}
	info := s.CachedInfo()
	matches := func(pattern string) bool { return overlap(pattern, subject) }
	isCopy := info.Config.Mirror != nil || len(info.Config.Sources) > 0
	if subject != "" && !isCopy && !slices.ContainsFunc(info.Config.Subjects, matches) {
		return nil, nil, fmt.Errorf(
			"stream %q takes the subjects %q, and the option subject is %q: correct it", name,
			info.Config.Subjects, subject)
	}
	return s, info, nil
}

// identity returns an id of a stream. If a stream is deleted and created again under the same name,
// the new stream has another id.
func (c *client) identity(info *jetstream.StreamInfo) string {
	return identityPrefix + digest(
		fmt.Sprintf("%s\x00%s\x00%d", c.o.Domain, info.Config.Name, info.Created.UnixNano()))
}

const identityPrefix = "nats-"

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

// openConsumer returns the durable consumer. It creates the consumer if it does not exist.
func (c *client) openConsumer(
	ctx context.Context,
	s jetstream.Stream,
	o *SourceOptions,
	durable string,
	log *slog.Logger,
) (jetstream.Consumer, error) {
	consumer, err := s.Consumer(ctx, durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = s.CreateConsumer(ctx, consumerConfig(o, durable))
		if errors.Is(err, jetstream.ErrConsumerExists) {
			consumer, err = s.Consumer(ctx, durable) // another process created it first
		} else if err == nil {
			log.Info("consumer created", "stream", o.Stream, "consumer", durable, "start", o.Start)
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, fmt.Errorf(
			"consumer %q of stream %q pushes its messages, and only a pull consumer can be shared: "+
				"delete it, or name another durable: %w",
			durable,
			o.Stream,
			err,
		)
	}
	if err != nil {
		return nil, c.requestError(o.Stream, fmt.Errorf("consumer %q: %w", durable, err))
	}
	return consumer, checkConsumer(o, durable, &consumer.CachedInfo().Config, log)
}

func consumerConfig(o *SourceOptions, durable string) jetstream.ConsumerConfig {
	out := jetstream.ConsumerConfig{
		Durable: durable, Description: "penstock", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: o.AckWait, MaxDeliver: -1, MaxAckPending: o.MaxAckPending, FilterSubject: o.Subject,
	}
	if o.Start == startLatest {
		out.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	return out
}

// checkConsumer refuses a consumer with settings that would lose messages or do not fit the
// options. It only logs a difference in ack_wait or max_ack_pending, since these options apply only
// to consumers that the source creates.
func checkConsumer(
	o *SourceOptions,
	durable string,
	is *jetstream.ConsumerConfig,
	log *slog.Logger,
) error {
	where := fmt.Sprintf("consumer %q of stream %q", durable, o.Stream)
	var subjects []string
	if o.Subject != "" {
		subjects = []string{o.Subject}
	}
	has := is.FilterSubjects
	if is.FilterSubject != "" {
		has = []string{is.FilterSubject}
	}
	switch {
	case is.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf(
			"%s has the ack policy %s, with which messages are lost: it must be explicit; "+
				"delete the consumer, or name another durable",
			where,
			strings.ToLower(strings.TrimPrefix(is.AckPolicy.String(), "Ack")),
		)
	case is.MaxDeliver > 0:
		return fmt.Errorf(
			"%s gives up a message after %d deliveries, which loses it: set max_deliver to -1, "+
				"with `nats consumer edit`",
			where,
			is.MaxDeliver,
		)
	case is.HeadersOnly:
		return fmt.Errorf(
			"%s is headers_only, so that its messages have no data: remove this setting, or name "+
				"another durable", where)
	case is.PriorityPolicy != jetstream.PriorityPolicyNone:
		return fmt.Errorf(
			"%s has priority groups, which the source does not support: name another durable",
			where)
	case len(is.BackOff) > 0:
		return fmt.Errorf(
			"%s has a backoff, which replaces ack_wait: remove it, or name another durable", where)
	case is.AckWait < minAckWait:
		return fmt.Errorf("%s has an ack_wait of %v, want %v or more", where, is.AckWait,
			minAckWait)
	case !slices.Equal(has, subjects):
		return fmt.Errorf(
			"%s reads the subjects %q, and the option subject is %q: make them equal, or name another durable",
			where, has, o.Subject)
	}
	if is.AckWait != o.AckWait || is.MaxAckPending != o.MaxAckPending {
		log.Info(
			"the consumer exists; its settings differ from the options, which are for new ones",
			"consumer", durable, "ack_wait", is.AckWait, "max_ack_pending", is.MaxAckPending)
	}
	return nil
}

// checkShared returns the state of the consumer and the first sequence of its stream. If final is
// true, the error must end the route: the stream or the consumer was deleted or recreated, or
// isFinal returns true for it.
func (r *sharedReader) checkShared(
	ctx context.Context,
) (info *jetstream.ConsumerInfo, first uint64, final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.s.o.ConnectTimeout)
	defer cancel()
	st, err := r.client.js.Stream(ctx, r.s.o.Stream)
	if err != nil {
		return nil, 0, isFinal(err), r.goneError(err)
	}
	now := st.CachedInfo()
	if !now.Created.Equal(r.created) {
		return nil, 0, true, fmt.Errorf(
			"stream %q was deleted and created again while it was read", r.s.o.Stream)
	}
	if info, err = r.consumer.Info(ctx); err != nil {
		return nil, 0, isFinal(err), r.goneError(err)
	}
	if isRecreated(r.opening, info) {
		return nil, 0, true, fmt.Errorf(
			"consumer %q of stream %q was deleted and created again while it was read",
			r.durable, r.s.o.Stream)
	}
	return info, now.State.FirstSeq, false, nil
}

// maxClockSkew is the largest difference between the clocks of servers that isRecreated tolerates.
const maxClockSkew = time.Minute

// isRecreated reports whether a consumer was deleted and created again since it was opened.
//
// The time of creation in the consumer's info may differ although the consumer is the same. In a
// cluster of NATS Server 2.10 or 2.11, a restarted server uses the time at which it created its own
// replica. After each change of the leader, the info has the time of the new leader. But all these
// times are usually before the consumer was opened. The time of a recreated consumer is after it.
func isRecreated(opening, now *jetstream.ConsumerInfo) bool {
	return !now.Created.Equal(opening.Created) &&
		now.Created.After(opening.TimeStamp.Add(-maxClockSkew))
}

func (r *sharedReader) goneError(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("stream %q was deleted while it was read: %w", r.s.o.Stream, err)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf(
			"consumer %q of stream %q was deleted while it was read; it is created again at start: %w",
			r.durable, r.s.o.Stream, err)
	}
	return r.client.requestError(r.s.o.Stream, err)
}
