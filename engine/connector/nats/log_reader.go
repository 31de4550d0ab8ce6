package nats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// logReader reads a stream by sequence, the number of a message in the stream. The engine keeps the
// position, as it does for files. The server keeps no durable state: the consumer is ephemeral, and
// the library recreates it when a connection is lost. logReader implements stream.Reader,
// stream.PartitionTracker and stream.RangeReader.
type logReader struct {
	s      *StreamSource
	o      stream.OpenOptions
	client *client
	stream jetstream.Stream
	part   *stream.Partition
	count  func(string, int64)
	meta   *messages.MetaAdder

	messages jetstream.MessagesContext // nil if consume must be called
	checked  string                    // name of the consumer at the last check of the stream
	cursor   cursor
	first    bool     // the engine does not know the position chosen by the option start yet
	held     *content // the next message, after a settled range
	ended    bool     // a finite run has read all messages
	deleted  int64    // all sequences up to this one are read or known to be deleted
	gapSeen  time.Time
	pending  uint64   // content.pending of the message before; 0 if unknown
	gone     []string // partitions of deleted streams with the same name

	mu      sync.Mutex     // guards counted
	counted []stream.Range // deleted sequences that lost_upstream contains, in order
}

func (s *StreamSource) openLog(
	ctx context.Context,
	c *client,
	o stream.OpenOptions,
) (*logReader, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.o.ConnectTimeout)
	defer cancel()
	st, info, err := c.openStream(ctx, s.o.Stream, s.o.Subject)
	if err != nil {
		return nil, err
	}
	if info.Config.Retention != jetstream.LimitsPolicy {
		return nil, fmt.Errorf(
			"stream %q has the retention %v, which deletes messages that its consumers have acknowledged: "+
				"set durable",
			s.o.Stream,
			info.Config.Retention,
		)
	}
	r := &logReader{
		s: s, o: o, client: c, stream: st, part: &stream.Partition{ID: c.identity(info), Name: s.o.Stream},
		count: readers.Counter(s.host, &o, logCounters), meta: messages.NewMetaAdder(s.o.Meta.fields()),
	}
	if err := r.begin(info); err != nil {
		return nil, err
	}
	return r, r.consume(ctx)
}

func (r *logReader) log() *slog.Logger { return r.s.host.Log() }

// consume creates a consumer that fetches the messages after the cursor.
func (r *logReader) consume(ctx context.Context) error {
	consumer, err := r.stream.OrderedConsumer(ctx, r.consumerConfig())
	if err != nil {
		return r.client.requestError(r.s.o.Stream, err)
	}
	// a message larger than the limit would never be fetched
	most := max(int(r.s.o.Memory), int(r.client.conn.MaxPayload())+2*maxSubject)
	r.messages, err = consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(logMessages, most),
		jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return r.client.requestError(r.s.o.Stream, err)
	}
	return nil
}

// logMessages bounds the number of messages that are fetched ahead.
const logMessages = 10_000

// begin sets the position to start from.
func (r *logReader) begin(info *jetstream.StreamInfo) error {
	for m := range r.o.Known {
		if m.Part.ID != r.part.ID && m.Part.Name == r.part.Name &&
			strings.HasPrefix(m.Part.ID, identityPrefix) {
			r.log().Warn("the stream was deleted and created again; it is read from its start", "stream", r.s.o.Stream)
			r.gone = append(r.gone, m.Part.ID)
		}
	}
	mark, known := r.o.Resume(r.part.ID)
	r.cursor = cursor{last: mark.Watermark.Num, above: mark.Above}
	if !known {
		at, latest := int64(info.State.FirstSeq)-1, r.s.o.Start == startLatest && len(r.gone) == 0
		if latest {
			at = int64(info.State.LastSeq)
		}
		r.cursor.last, r.first = max(at, 0), latest || at > 0
		return nil
	}
	if last := int64(info.State.LastSeq); r.cursor.last > last {
		return fmt.Errorf(
			"stream %q ends at %d, but the position is %d: it was restored from an older state; "+
				"`penstock checkpoint reset` reads it from its start",
			r.s.o.Stream,
			last,
			r.cursor.last,
		)
	}
	return r.checkDeleted(info)
}

// checkDeleted checks whether messages were deleted before they were read. If so, it returns an
// error that ends the route, or only reports and counts the loss, according to the option
// truncated.
func (r *logReader) checkDeleted(info *jetstream.StreamInfo) error {
	begins := int64(info.State.FirstSeq)
	known := max(r.cursor.last, r.deleted)
	lost := begins - 1 - known
	for _, done := range r.cursor.above {
		lost -= max(0, min(done.To.Num, begins-1)-max(done.From.Num, known))
	}
	if lost <= 0 {
		return nil
	}
	err := fmt.Errorf(
		"stream %q: %d sequences from %d on were deleted, by a purge or the limits of the "+
			"stream, before they were read",
		r.s.o.Stream, lost, known+1)
	if r.s.o.Truncated == truncatedStop {
		return fmt.Errorf("%w; set truncated: earliest to resume at %d", err, begins)
	}
	r.deleted = begins - 1
	r.count("lost_upstream", lost)
	r.s.host.Fault(err)
	r.noteUnread(known, begins-1)
	return nil
}

// noteUnread notes that the sequences in the range (from, to] are counted as lost, except those
// that are settled (delivered, dead-lettered or dropped). The span of the next batch contains the
// lost sequences, too. If this batch is read again, reportDeleted must not count them twice.
func (r *logReader) noteUnread(from, to int64) {
	for _, done := range r.cursor.above {
		r.newlyLost(from, min(done.From.Num, to))
		from = max(from, done.To.Num)
	}
	r.newlyLost(from, to)
}

// maxCounted is the maximum number of ranges in r.counted, the sequences that were counted as lost.
// Beyond it, the ranges with the lowest sequences are forgotten. Their batches are the least likely
// to be read again.
const maxCounted = 1000

// newlyLost returns the number of sequences in the range (from, to] that were not counted before,
// and notes that they are counted.
func (r *logReader) newlyLost(from, to int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := to - from
	for _, c := range r.counted {
		lost -= max(0, min(to, c.To.Num)-max(from, c.From.Num))
	}
	if lost <= 0 {
		return 0
	}
	r.counted = ledger.Join(append(r.counted,
		stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}}))
	r.counted = r.counted[max(0, len(r.counted)-maxCounted):]
	return lost
}

func (r *logReader) consumerConfig() jetstream.OrderedConsumerConfig {
	out := jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   uint64(r.cursor.last) + 1, MaxResetAttempts: resetAttempts,
	}
	if r.s.o.Subject != "" {
		out.FilterSubjects = []string{r.s.o.Subject}
	}
	return out
}

// resetAttempts bounds the library's attempts in a row to recreate its consumer. The library ignores
// the context of a read during an attempt, which may take 10 s. When the attempts have failed, the
// reader checks whether the stream still exists, and creates a consumer itself.
const resetAttempts = 1

// Time limits of a read. The client library notices a lost request only in a wait that is longer
// than two heartbeat intervals, so checkEvery is longer than that.
const (
	checkEvery = 5 * time.Second        // between checks of the stream without messages
	onceWait   = 100 * time.Millisecond // until a finite run checks whether it has read all
	minLinger  = time.Millisecond
)

// Read implements stream.Reader.
func (r *logReader) Read(ctx context.Context, b *stream.Batch) error {
	r.cursor.begin()
	if r.first { // the span is empty if the stream is empty
		r.first = false
		b.Spans = append(b.Spans, stream.Span{Part: r.part,
			Range: stream.Range{To: stream.Position{Num: r.cursor.last}}})
		return nil
	}
	used, err := r.fill(ctx, b)
	if err != nil && (len(b.Spans) == 0 || ctx.Err() != nil) {
		return err
	}
	r.client.noteRead(nil)
	addMeta(r.meta, b, used) // an error is returned again by the next call
	return nil
}

// fill appends messages until b is full, the linger time has passed, or a range follows that is
// settled (delivered, dead-lettered or dropped).
func (r *logReader) fill(ctx context.Context, b *stream.Batch) (used []*content, err error) {
	waiting := ctx
	for !b.Full() {
		c, err := r.next(ctx, waiting)
		if err != nil {
			return used, err
		}
		if int64(c.seq) > r.cursor.last+1 && !c.noMessage {
			if err := r.passGap(ctx, c); err != nil {
				r.held = c
				return used, err
			}
		}
		r.pending = c.pending
		step := r.cursor.advance(c.seq, len(b.Spans) > 0)
		if step == skipMessage {
			continue
		}
		if step == takeMessage && !c.noMessage {
			appendRecord(b, c)
			used = append(used, c)
		}
		readers.ExtendSpan(b, stream.Span{Part: r.part}, r.cursor.from, r.cursor.last)
		if step == endSpan {
			r.held = c
			return used, nil
		}
		if waiting == ctx {
			lingering, cancel := context.WithTimeout(ctx, max(r.o.Linger, minLinger))
			defer cancel()
			waiting = lingering
		}
	}
	return used, nil
}

// next returns the next message. Its parameter waiting is a context that bounds the wait. At the
// end of a finite run (--once), next returns io.EOF.
//
// With the option subject, next may also return a content without a message, with the last sequence
// of the stream. All messages of the subject up to this sequence are read then. So the position
// stays near the end of a stream with many messages of other subjects. Otherwise, the reader would
// report a loss when the stream's limits delete these messages.
func (r *logReader) next(ctx, waiting context.Context) (*content, error) {
	if c := r.held; c != nil {
		r.held = nil
		return c, nil
	}
	if r.ended {
		return nil, io.EOF
	}
	var state backoff.State
	wait := checkEvery
	if r.o.Once {
		wait = onceWait
	}
	for {
		c, err := r.fetch(ctx, waiting, wait)
		switch {
		case err == nil:
			return c, nil
		case waiting.Err() != nil:
			return nil, context.Cause(waiting)
		case !errors.Is(err, context.DeadlineExceeded):
			r.log().Debug("read failed; retrying", "stream", r.s.o.Stream, "error", err)
			r.client.noteRead(err)
			r.stop()
			pause, next, _ := pullBackoff.Next(state, nil)
			state = next
			if retry.Sleep(waiting, pause) != nil {
				return nil, context.Cause(waiting)
			}
		}
		readTo, err := r.look(ctx)
		switch {
		case err != nil:
			return nil, err
		case r.s.o.Subject != "" && readTo > r.cursor.last:
			return &content{seq: uint64(readTo), noMessage: true}, nil
		case r.ended:
			return nil, io.EOF
		}
		wait = checkEvery // in a finite run, there is a message, or the server did not answer
	}
}

// fetch returns the next message of the consumer. It waits for a message until the context waiting
// ends. If waiting is the same context as ctx, as for the first message of a batch, it waits for at
// most the duration wait.
func (r *logReader) fetch(ctx, waiting context.Context, wait time.Duration) (*content, error) {
	if r.messages == nil {
		if err := r.consume(ctx); err != nil {
			return nil, err
		}
	}
	if waiting == ctx {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		waiting = limited
	}
	m, err := r.messages.Next(jetstream.NextContext(waiting))
	if err != nil {
		return nil, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	// After an error, the library creates a consumer with another name. The stream may then be
	// another one, too.
	if meta.Consumer != r.checked {
		if _, _, err := r.checkStream(ctx); err != nil {
			r.stop() // the message is fetched again
			return nil, err
		}
		r.checked = meta.Consumer
	}
	return &content{
		seq:     meta.Sequence.Stream,
		subject: m.Subject(),
		header:  m.Headers(),
		data:    m.Data(),
		at:      meta.Timestamp,
		pending: meta.NumPending,
	}, nil
}

// look checks that the stream was not deleted or recreated. It returns a sequence up to which all
// messages of the option subject (all messages without it) are read, or 0 if no such sequence is
// known. In a finite run, it sets ended if there are no more messages to read. Like passGap, it
// detects messages that were deleted before they were read. If the server does not answer, look
// returns no error, because the library reconnects. If the servers refuse the login, look returns
// an error.
func (r *logReader) look(ctx context.Context) (readTo int64, err error) {
	if err := r.client.refused(); err != nil {
		return 0, err
	}
	info, final, err := r.checkStream(ctx)
	switch {
	case final:
		return 0, err
	case err != nil:
		r.client.noteRead(err)
		return 0, nil
	}
	if r.messages != nil { // the consumer did not fail either
		r.client.noteRead(nil)
	}
	if !r.o.Once && r.s.o.Subject == "" {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.s.o.ConnectTimeout)
	defer cancel()
	_, err = r.message(ctx, uint64(r.cursor.last)+1)
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	r.ended = r.o.Once
	return int64(info.State.LastSeq), r.checkDeleted(info)
}

// checkStream returns the state of the stream. It returns an error unless the server confirms that
// the stream is the one that was opened. If final is true, the error must end the route: the stream
// was deleted or recreated, or isFinal returns true for it.
func (r *logReader) checkStream(
	ctx context.Context,
) (info *jetstream.StreamInfo, final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.s.o.ConnectTimeout)
	defer cancel()
	info, err = r.stream.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, true, fmt.Errorf("stream %q was deleted while it was read: %w", r.s.o.Stream,
			err)
	case err != nil:
		return nil, isFinal(err), r.client.requestError(r.s.o.Stream, err)
	case r.client.identity(info) != r.part.ID:
		return nil, true, fmt.Errorf("stream %q was deleted and created again while it was read",
			r.s.o.Stream)
	}
	return info, false, nil
}

// gapEvery is the minimum time between two checks of gaps in the sequences, if the option subject
// is set. Usually no message was lost in these gaps: the sequences belong to messages of other
// subjects. A gap is checked at once if messages of the subject are missing, see passGap.
const gapEvery = time.Second

// passGap is called if sequences before c are missing. It detects messages that were deleted by a
// purge or a limit, because these raise the first sequence of the stream. In this case it calls
// checkDeleted, which ends the route or only reports the loss. passGap ignores messages that were
// deleted one by one, and messages of other subjects.
//
// With the option subject, passGap checks at most once per gapEvery. There is one exception: each
// message usually lowers c.pending, the number of further messages, by one. If it is lowered by
// more, messages of the subject are missing, and passGap checks at once.
func (r *logReader) passGap(ctx context.Context, c *content) error {
	if r.s.o.Subject != "" && time.Since(r.gapSeen) < gapEvery && c.pending+1 >= r.pending {
		return nil
	}
	r.gapSeen = time.Now()
	info, err := r.stream.Info(ctx)
	if err != nil {
		return r.client.requestError(r.s.o.Stream, err)
	}
	if info.State.FirstSeq > c.seq {
		info.State.FirstSeq = c.seq // ignore later gaps
	}
	return r.checkDeleted(info)
}

func (r *logReader) stop() {
	if r.messages != nil {
		r.messages.Stop()
		r.messages = nil
	}
}

// Commit implements stream.Reader. The engine keeps the position.
func (r *logReader) Commit(context.Context, []stream.Mark) error { return nil }

// Metadata implements stream.PartitionTracker. This reader stores no metadata with its progress.
func (r *logReader) Metadata(stream.Mark) string { return "" }

// Deleted implements stream.PartitionTracker. It returns the partitions of deleted streams, each
// only once.
func (r *logReader) Deleted() (ids []string) {
	ids, r.gone = r.gone, nil
	return ids
}

// CanReadRanges implements stream.RangeReader. It returns false for streams that were deleted.
func (r *logReader) CanReadRanges(partitionID string) bool { return partitionID == r.part.ID }

// ReadRanges implements stream.RangeReader. It requests one message at a time.
func (r *logReader) ReadRanges(
	ctx context.Context,
	b *stream.Batch,
	p stream.Partition,
	ranges []stream.Range,
) error {
	if p.ID != r.part.ID {
		return stream.ErrRangeMissing
	}
	var used []*content
	for _, one := range ranges {
		bytes, origins := len(b.Data), b.Origins
		for seq := uint64(one.From.Num) + 1; seq <= uint64(one.To.Num); {
			c, err := r.message(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) ||
				err == nil && c.seq > uint64(one.To.Num) {
				break
			}
			if err != nil {
				return r.client.requestError(r.s.o.Stream, err)
			}
			appendRecord(b, c)
			b.Records[len(b.Records)-1].Span = uint32(len(b.Spans))
			used = append(used, c)
			seq = c.seq + 1
		}
		if b.Origins == origins {
			return fmt.Errorf("stream %q: sequences %d to %d: %w", r.s.o.Stream, one.From.Num+1,
				one.To.Num, stream.ErrRangeGone)
		}
		b.Spans = append(b.Spans,
			stream.Span{Part: r.part, Range: one, Bytes: len(b.Data) - bytes})
	}
	addMeta(messages.NewMetaAdder(r.s.o.Meta.fields()), b, used)
	return r.reportDeleted(ctx, ranges)
}

// reportDeleted reports and counts the sequences of ranges that were deleted by a purge or the
// limits of the stream, which raise its first sequence. It counts each sequence once, although a
// batch may be read again several times, or checkDeleted may have counted a part of the range.
func (r *logReader) reportDeleted(ctx context.Context, ranges []stream.Range) error {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return r.client.requestError(r.s.o.Stream, err)
	}
	lost, before := int64(0), int64(info.State.FirstSeq)-1
	for _, one := range ranges {
		lost += r.newlyLost(one.From.Num, min(one.To.Num, before))
	}
	if lost > 0 {
		r.count("lost_upstream", lost)
		r.s.host.Fault(fmt.Errorf("stream %q: %d sequences before %d were deleted, by a purge or "+
			"the limits of the stream, while they waited for a retry", r.s.o.Stream, lost, before+1))
	}
	return nil
}

// Close implements stream.Reader.
func (r *logReader) Close() error {
	r.stop()
	r.client.close()
	return nil
}
