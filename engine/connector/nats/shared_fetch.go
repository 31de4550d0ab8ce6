package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// Sizes and times of a pull.
const (
	pullMessages  = 1000
	pullTime      = 5 * time.Second
	pullHeartbeat = time.Second
	groupMessages = 256 // messages that are queued before mu is released
)

// pullBackoff is the wait before the next pull after a failed one.
var pullBackoff = backoff.Exponential(50*time.Millisecond, 2, 2*time.Second).Equal()

// refusedAfter is the time after which a refused login ends the route, so that the route's status
// shows the error. A shorter refusal does not end the route, because a restart of the route would
// repeat the messages in flight.
const refusedAfter = 5 * time.Second

// fetch pulls messages until ctx is done, Close begins, checkShared returns a final error, or the
// servers have refused the login for the time refusedAfter.
func (r *sharedReader) fetch(ctx context.Context) {
	if !r.beginRun(ctx, r.consumer.CachedInfo().AckFloor.Stream+1, nil) {
		return
	}
	var state backoff.State
	var refusedSince time.Duration // when the servers began to refuse; 0 if they do not
	large, check := false, false   // check: the stream may be another one since the last pull
	for {
		room, waited, err := r.awaitRoom(ctx)
		if err != nil {
			return
		}
		if check = check || waited; check {
			var final bool
			if final, err = r.checkConnected(ctx); final {
				r.fail(err)
				return
			}
		}
		begun, n := r.now(), 0
		if err == nil {
			n, err = r.pull(ctx, room, large)
		}
		if ctx.Err() != nil {
			return
		}
		if n > 0 {
			r.client.noteRead(nil)
		} else {
			r.client.noteRead(err)
		}
		check = err != nil
		// A pull ends at once without an error if the next message is larger than the room.
		large = err == nil && n == 0 && r.now()-begun < pullTime/2
		if err == nil {
			state, refusedSince = backoff.State{}, 0
			continue
		}
		r.log().Debug("pull failed; retrying", "consumer", r.durable, "error", err)
		switch refused := r.client.refused(); {
		case refused == nil:
			refusedSince = 0
		case refusedSince == 0:
			refusedSince = r.now()
		case r.now()-refusedSince >= refusedAfter:
			r.fail(refused)
			return
		}
		wait, next, _ := pullBackoff.Next(state, nil)
		state = next
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// checkConnected checks with checkShared that the stream and the consumer are those that were
// opened. During a pull this is not needed, because a pull ends with an error if its consumer is
// deleted.
func (r *sharedReader) checkConnected(ctx context.Context) (final bool, err error) {
	if !r.client.conn.IsConnected() {
		return false, natsgo.ErrDisconnected
	}
	_, _, final, err = r.checkShared(ctx)
	return final, err
}

// awaitRoom waits until the queued messages leave at least half of the option Memory free. It
// returns the number of free bytes, and reports whether it has waited.
func (r *sharedReader) awaitRoom(ctx context.Context) (free int64, waited bool, err error) {
	for ; ; waited = true {
		r.mu.Lock()
		room, changed := int64(r.s.o.Memory)-r.d.bytes, r.room
		r.mu.Unlock()
		select {
		case <-r.stopped:
			return 0, waited, context.Canceled
		default:
		}
		if room >= int64(r.s.o.Memory)/2 {
			return room, waited, ctx.Err()
		}
		select {
		case <-changed:
		case <-r.stopped:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return 0, waited, ctx.Err()
		}
	}
}

// pull sends one request for messages, passes the received ones to arrive and returns their number.
// If large is set, it requests a single message of any size.
func (r *sharedReader) pull(ctx context.Context, room int64, large bool) (n int, err error) {
	wait := pullTime
	if most := r.config.MaxRequestExpires; most > 0 {
		wait = min(wait, most)
	}
	pulling, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	options := []jetstream.FetchOpt{jetstream.FetchContext(pulling)}
	if wait >= 3*pullHeartbeat {
		options = append(options, jetstream.FetchHeartbeat(pullHeartbeat))
	}
	most := pullMessages
	if limit := r.config.MaxRequestBatch; limit > 0 {
		most = min(most, limit)
	}
	if large {
		most = 1
	} else {
		if limit := r.config.MaxRequestMaxBytes; limit > 0 {
			room = min(room, int64(limit))
		}
		options = append(options, jetstream.FetchMaxBytes(int(room)))
	}
	got, err := r.consumer.Fetch(most, options...)
	if err != nil {
		return 0, err
	}
	group := make([]*message, 0, min(groupMessages, most))
	for m := range got.Messages() {
		group = r.appendMessage(group[:0], m)
		for more := true; more && len(group) < groupMessages; {
			select {
			case m, ok := <-got.Messages():
				if more = ok; ok {
					group = r.appendMessage(group, m)
				}
			default:
				more = false
			}
		}
		n += len(group)
		r.arrive(ctx, group)
	}
	if err = got.Error(); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	return n, err
}

func (r *sharedReader) appendMessage(group []*message, m jetstream.Msg) []*message {
	meta, err := m.Metadata()
	if err != nil {
		r.s.host.Fault(
			fmt.Errorf("stream %q: a message without a position is left out: %w", r.s.o.Stream,
				err),
		)
		return group
	}
	if meta.NumDelivered > 1 {
		r.count("redelivered", 1)
	}
	return append(group, &message{
		content: content{
			seq: meta.Sequence.Stream, subject: m.Subject(), header: m.Headers(), data: m.Data(), at: meta.Timestamp,
		},
		reply: m.Reply(), extended: r.now(),
	})
}

// arrive queues the messages of group in runs, the partitions of this session. It begins new runs
// as needed.
func (r *sharedReader) arrive(ctx context.Context, group []*message) {
	for len(group) > 0 {
		m, placed := r.queue(group)
		if m == nil {
			return
		}
		group = group[placed:]
		r.place(ctx, m)
	}
}

// queue queues the messages of group until one of them needs a new run, that is, a new partition of
// the session. It returns this message, and the number of messages up to and including it. If no
// message needs a new run, it returns nil and 0.
func (r *sharedReader) queue(group []*message) (*message, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wake()
	r.caughtUp = false
	for i, m := range group {
		switch r.d.take(m) {
		case merged:
			r.count("redeliveries_merged", 1)
		case repeated:
			r.count("acks_repeated", 1)
			r.acks = append(r.acks, m.reply)
			select {
			case r.nudge <- struct{}{}:
			default:
			}
		case unplaced:
			return m, i + 1
		case queued:
		}
	}
	return nil, 0
}

// maxRuns is the maximum number of partitions (runs) of a session.
const maxRuns = 8

// nakDelay is the time after which the server may redeliver a message for which this session has no
// partition at the moment.
const nakDelay = time.Second

// place begins a run, a new partition of the session, with m. If the session already has maxRuns
// runs, place first removes a run without unsettled messages. It gives m back to the server in two
// cases: every run has unsettled messages, or the engine does not assign the new partition.
func (r *sharedReader) place(ctx context.Context, m *message) {
	r.mu.Lock()
	full, spare := len(r.d.runs) >= maxRuns, ""
	if full {
		spare = r.d.spare()
	}
	r.mu.Unlock()
	if full && spare == "" {
		r.giveBack(m)
		return
	}
	if full {
		r.o.Assignments.Revoke(ctx, []string{spare})
		r.mu.Lock()
		r.d.remove(spare)
		delete(r.owned, spare)
		r.mu.Unlock()
	}
	if !r.beginRun(ctx, m.seq, m) {
		r.giveBack(m)
	}
}

// beginRun lets the engine assign a new partition that begins before sequence seq. If m is not nil,
// it queues m there. It reports whether the engine has assigned the partition.
func (r *sharedReader) beginRun(ctx context.Context, seq uint64, m *message) bool {
	r.parts++
	part := &stream.Partition{
		ID:   fmt.Sprintf("%s/%s/%s/%d", r.identity, digest(r.durable)[:8], r.session, r.parts),
		Name: r.s.o.Stream + "/" + r.durable, RecordPrefix: r.identity,
	}
	r.mu.Lock()
	r.owned[part.ID] = true
	r.mu.Unlock()
	offer := stream.PartitionOffer{Part: *part, Watermark: stream.Position{Num: int64(seq) - 1}}
	got, err := r.o.Assignments.Assign(ctx, []stream.PartitionOffer{offer})
	if err == nil {
		err = got[0].Err
	}
	if err != nil {
		r.mu.Lock()
		delete(r.owned, part.ID)
		r.mu.Unlock()
		if ctx.Err() == nil {
			r.fail(fmt.Errorf("consumer %q of stream %q: %w", r.durable, r.s.o.Stream, err))
		}
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.d.add(part, got[0].Number, seq)
	if m != nil {
		r.d.take(m)
	}
	r.wake()
	return true
}

// giveBack tells the server to redeliver m after nakDelay.
func (r *sharedReader) giveBack(m *message) {
	r.count("naks", 1)
	r.send(m.reply, fmt.Sprintf(`%s {"delay":%d}`, nak, nakDelay))
}

// Acknowledgements of the JetStream protocol.
const (
	ack        = "+ACK"
	nak        = "-NAK"
	inProgress = "+WPI"
)

// send publishes an acknowledgement. While no server is connected, the connection buffers up to
// ackBuffer bytes.
func (r *sharedReader) send(reply, what string) {
	if err := r.client.conn.Publish(reply, []byte(what)); err != nil {
		r.count("acks_failed", 1)
	}
}

// sendAcks publishes the acknowledgements that settle has queued.
func (r *sharedReader) sendAcks() {
	r.mu.Lock()
	acks := r.acks
	r.acks = nil
	r.mu.Unlock()
	for _, reply := range acks {
		r.send(reply, ack)
	}
}

// signal sends acknowledgements. It also sends in-progress signals, so that the server does not
// redeliver unsettled messages.
func (r *sharedReader) signal(ctx context.Context) {
	every := r.config.AckWait / 4 // the server redelivers a message after AckWait without a signal
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	var replies []string
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.nudge:
			r.sendAcks()
		case <-tick.C:
			r.mu.Lock()
			replies = r.d.due(r.now(), every, replies[:0])
			r.mu.Unlock()
			for _, reply := range replies {
				r.send(reply, inProgress)
			}
		}
	}
}

// Intervals between checks of the consumer.
const (
	watchEvery     = 10 * time.Second
	watchEveryOnce = 200 * time.Millisecond // in a finite run, which waits for the end
)

// watch detects that the stream or the consumer was deleted, that messages were deleted before
// delivery (only without the option subject), and that max_ack_pending is reached.
func (r *sharedReader) watch(ctx context.Context) {
	every := watchEvery
	if r.o.Once {
		every = watchEveryOnce
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last *jetstream.SequenceInfo
	var warned uint64
	for {
		info, first, final, err := r.checkShared(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case final:
			r.fail(err)
			return
		case err != nil:
			r.log().Debug("the consumer's state is not known", "error", err)
		default:
			if last != nil && r.s.o.Subject == "" {
				r.lose(deletedUnread(*last, info.Delivered, first), last.Stream+1, first-1)
			}
			last = &info.Delivered
			r.observeConsumer(info, &warned)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lose reports and counts n messages that were deleted before the server delivered them.
func (r *sharedReader) lose(n, from, to uint64) {
	if n == 0 {
		return
	}
	r.count("lost_upstream", int64(n))
	r.s.host.Fault(
		fmt.Errorf(
			"stream %q: at least %d messages of the sequences %d to %d were deleted, by a purge or the limits of "+
				"the stream, before consumer %q had read them",
			r.s.o.Stream,
			n,
			from,
			to,
			r.durable,
		),
	)
}

// observeConsumer warns if max_ack_pending is reached. It also sets caughtUp if the server has no
// messages beyond those of this session.
func (r *sharedReader) observeConsumer(info *jetstream.ConsumerInfo, warned *uint64) {
	if most := r.config.MaxAckPending; most > 0 && info.NumAckPending >= most &&
		info.NumPending > 0 {
		r.count("ack_pending_full", 1)
		if *warned++; *warned == 1 {
			r.log().Warn("max_ack_pending is reached: the server delivers nothing until messages are acknowledged",
				"consumer", r.durable, "max_ack_pending", most)
		}
	} else {
		*warned = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	caughtUp := info.NumPending == 0 && info.NumAckPending <= len(r.d.open)
	if caughtUp != r.caughtUp {
		r.caughtUp = caughtUp
		r.wake()
	}
}
