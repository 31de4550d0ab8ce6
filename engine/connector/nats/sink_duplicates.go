package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/stream"
)

// defaultWindow is the time for which streams remember ids unless they are configured otherwise.
const defaultWindow = 2 * time.Minute

// observeStream refuses a stream that never acknowledges messages. It warns if the stream forgets
// the ids of deleted messages when its server restarts. It also stores in s.doubts the time for
// which the stream remembers ids.
func (s *StreamSink) observeStream(o *jetstream.StreamConfig) error {
	if o.NoAck {
		return fmt.Errorf("stream %q has no_ack, so that stored and lost messages cannot be "+
			"told apart: remove no_ack, or name another stream", o.Name)
	}
	if o.Retention != jetstream.LimitsPolicy {
		s.host.Log().Warn("the stream forgets the ids of deleted messages when its server "+
			"restarts, so that a repeated message may be stored twice; a stream with limits "+
			"retention does not", "stream", o.Name, "retention", o.Retention.String())
	}
	if o.Duplicates > 0 {
		s.doubts.window = o.Duplicates
	}
	return nil
}

// settingsTimeout bounds the request for the settings of a stream. Users without the permission get
// no response.
const settingsTimeout = 2 * time.Second

// observe requests the settings of a stream and passes them to observeStream. If there is no
// response, it returns no error: the user may lack the permission for this request, but have all
// permissions that deliveries need.
func (s *StreamSink) observe(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	st, err := s.client.js.Stream(ctx, name)
	if err != nil {
		s.host.Log().Info("the settings of the stream are not known", "stream", name,
			"error", err)
		return nil
	}
	return s.observeStream(&st.CachedInfo().Config)
}

// maxDoubts is the maximum number of batches that a doubts remembers.
const maxDoubts = 4096

// doubts remembers batches that may be stored although there was no response. If such a batch is
// repeated after the stream has forgotten its ids, the sink counts possible duplicates. A doubts is
// safe for concurrent use.
type doubts struct {
	window time.Duration // time for which the stream remembers ids; constant after Open

	mu    sync.Mutex           // guards since
	since map[string]time.Time // time of the first attempt, by the id of the first record
}

func newDoubts() doubts {
	return doubts{window: defaultWindow, since: make(map[string]time.Time)}
}

// begin is called before an attempt to deliver a batch. id is the id of the first record in the
// batch. begin returns the time of the first attempt that may have stored the batch. If there is no
// earlier attempt, this is the new attempt, and the result is the time passed as now.
//
// begin also removes the batch from d. If the new attempt gets no response either, the caller adds
// the batch again.
func (d *doubts) begin(id string, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, ok := d.since[id]
	if !ok {
		return now
	}
	delete(d.since, id)
	return first
}

// add remembers a batch that may be stored. id is the id of the first record in the batch, and
// first is the time of the first attempt that may have stored it. If maxDoubts is exceeded, add
// forgets an arbitrary batch.
func (d *doubts) add(id string, first time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for old := range d.since {
		if len(d.since) < maxDoubts {
			break
		}
		delete(d.since, old)
	}
	d.since[id] = first
}

// firstUnanswered returns the index, among the kept records (neither dropped nor dead-lettered), of
// the first one that was sent and got no response from a stream. It returns -1 if there is none. An
// invalid response counts as none, because it is from another subscriber of the subject.
func (d *delivery) firstUnanswered() int {
	for k, err := range d.fates {
		if errors.Is(err, natsgo.ErrDisconnected) || errors.Is(err, natsgo.ErrPermissionViolation) ||
			errors.Is(err, jetstream.ErrAsyncPublishTimeout) ||
			errors.Is(err, jetstream.ErrInvalidJSAck) {
			return k
		}
	}
	return -1
}

// idOf returns the id of a record as a key of doubts.
func idOf(b *stream.Batch, i int) string { return string(b.AppendRecordID(nil, i)) }
