package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// sharedReader is one session with a durable pull consumer. Other processes may use the same
// consumer. It implements stream.AssignedReader and stream.SettledReader.
//
//	fetch   pulls messages while those not yet handed out take at most half of the option Memory
//	signal  sends acknowledgements and in-progress signals
//	watch   requests the state of the consumer at intervals
//
// A message stays in memory (type deliveries) until its record is settled (delivered to the sink,
// dead-lettered or dropped). Meanwhile, signal keeps the server from redelivering the message to
// another process.
type sharedReader struct {
	s        *StreamSource
	o        stream.OpenOptions
	durable  string
	client   *client
	consumer jetstream.Consumer
	config   jetstream.ConsumerConfig
	created  time.Time               // creation time of the stream
	opening  *jetstream.ConsumerInfo // state of the consumer when it was opened
	identity string                  // id of the stream, from client.identity
	session  string
	count    func(string, int64)
	meta     *messages.MetaAdder
	begun    time.Time
	nudge    chan struct{} // capacity 1: acks has grown
	silent   atomic.Bool   // the server did not answer the last Commit in time
	goes     sync.WaitGroup
	stopped  chan struct{} // closed by Close: no further pulls
	fetched  chan struct{} // closed when the fetching goroutine has ended

	parts int // number of partitions so far; owned by the fetching goroutine

	mu        sync.Mutex // guards the fields below
	d         *deliveries
	owned     map[string]bool // ids of the runs, including one that is being assigned
	changed   chan struct{}   // closed and replaced when there is something for Read
	room      chan struct{}   // closed and replaced when messages are handed out
	acks      []string        // replies to acknowledge
	caughtUp  bool            // the server has no messages beyond those of this session
	lastAbove time.Duration   // when Settled last acknowledged ranges above the watermark
	closing   bool
	stops     []context.CancelFunc // cancel the goroutines
	err       error                // Read returns it after all queued messages
}

func (s *StreamSource) openShared(
	ctx context.Context,
	c *client,
	o stream.OpenOptions,
	durable string,
) (*sharedReader, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.o.ConnectTimeout)
	defer cancel()
	st, info, err := c.openStream(ctx, s.o.Stream, s.o.Subject)
	if err != nil {
		return nil, err
	}
	consumer, err := c.openConsumer(ctx, st, &s.o, durable, s.host.Log())
	if err != nil {
		return nil, err
	}
	r := &sharedReader{
		s: s, o: o, durable: durable, client: c, consumer: consumer, config: consumer.CachedInfo().Config,
		created: info.Created, opening: consumer.CachedInfo(), identity: c.identity(info),
		session: rand.Text()[:13],
		count:   readers.Counter(s.host, &o, sharedCounters), meta: messages.NewMetaAdder(s.o.Meta.fields()),
		begun: time.Now(),
		nudge: make(chan struct{}, 1), stopped: make(chan struct{}), fetched: make(chan struct{}),
		d: newDeliveries(), owned: make(map[string]bool), changed: make(chan struct{}), room: make(chan struct{}),
	}
	r.start()
	return r, nil
}

// now returns the time since the session began.
func (r *sharedReader) now() time.Duration { return time.Since(r.begun) }

func (r *sharedReader) log() *slog.Logger { return r.s.host.Log() }

// start starts the goroutines of the session, which run until Close.
func (r *sharedReader) start() {
	r.run("nats/fetch", func(ctx context.Context) {
		defer close(r.fetched)
		r.fetch(ctx)
	})
	r.run("nats/signal", r.signal)
	r.run("nats/watch", r.watch)
}

func (r *sharedReader) run(name string, f func(context.Context)) {
	r.s.host.Go(name, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r.mu.Lock()
		if r.closing {
			r.mu.Unlock()
			return nil
		}
		r.goes.Add(1)
		r.stops = append(r.stops, cancel)
		r.mu.Unlock()
		defer r.goes.Done()
		f(ctx)
		return nil
	})
}

// fail makes Read return err, but only after Read has returned all queued messages.
func (r *sharedReader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.wake()
}

// wake makes a waiting Read check again for queued messages. The caller holds mu.
func (r *sharedReader) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Read implements stream.Reader. It returns queued messages of one run (partition).
func (r *sharedReader) Read(ctx context.Context, b *stream.Batch) error {
	used, err := r.read(ctx, b)
	if err != nil {
		return err
	}
	list := make([]*content, len(used))
	for i, m := range used {
		list[i] = &m.content
	}
	addMeta(r.meta, b, list)
	for _, m := range used {
		// not guarded by mu: no other goroutine reads these fields
		m.subject, m.header, m.data, m.at = "", nil, nil, time.Time{}
	}
	return nil
}

func (r *sharedReader) read(ctx context.Context, b *stream.Batch) (used []*message, err error) {
	var from *run
	err = readers.Collect(ctx, b, r.o.Linger, func() (bool, <-chan struct{}, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		some, of := r.d.fill(b, from)
		used, from = append(used, some...), of
		err := r.err
		if err == nil && r.o.Once && r.caughtUp && r.d.empty() {
			err = io.EOF
		}
		if len(some) > 0 {
			close(r.room)
			r.room = make(chan struct{})
		}
		if err != nil && len(b.Spans) > 0 {
			return true, r.changed, nil // the next call returns the error
		}
		return b.Full(), r.changed, err
	})
	return used, err
}

// aboveEvery is the minimum time between two calls of Settled that acknowledge ranges above the
// watermarks. Such a call is expensive: it visits all messages that were handed out to the engine
// and are not acknowledged.
const aboveEvery = 50 * time.Millisecond

// Settled implements stream.SettledReader. It acknowledges messages before Commit is called for
// them. So a kill repeats fewer messages, and max_ack_pending is reached later.
func (r *sharedReader) Settled(marks []stream.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	above := r.now()-r.lastAbove >= aboveEvery
	if above {
		r.lastAbove = r.now()
	}
	r.settle(marks, above)
}

// settle queues acknowledgements for the messages that are settled (delivered, dead-lettered or
// dropped) according to marks, the progress of the partitions. If above is false, it uses only the
// watermarks, and ignores the settled ranges above them. The caller holds mu.
func (r *sharedReader) settle(marks []stream.Mark, above bool) {
	for i := range marks {
		r.acks = r.d.settle(&marks[i], above, r.acks)
	}
	if len(r.acks) > 0 {
		select {
		case r.nudge <- struct{}{}:
		default:
		}
	}
}

// Commit implements stream.Reader. It returns when the server has received the acknowledgements.
// The server does not confirm them one by one. If an acknowledgement is lost, the server redelivers
// the message, and the session repeats the acknowledgement.
func (r *sharedReader) Commit(ctx context.Context, marks []stream.Mark) error {
	r.mu.Lock()
	r.settle(marks, true)
	r.mu.Unlock()
	r.sendAcks()
	ctx, cancel := context.WithTimeout(ctx, min(r.s.o.ConnectTimeout, commitTimeout))
	defer cancel()
	err := r.client.conn.FlushWithContext(ctx)
	r.silent.Store(errors.Is(err, context.DeadlineExceeded))
	if err != nil {
		return fmt.Errorf("consumer %q of stream %q: acknowledge: %w", r.durable, r.s.o.Stream,
			err)
	}
	return nil
}

// Owns implements stream.AssignedReader. No other session can get the partitions of this one. The
// session owns them as long as the consumer exists.
func (r *sharedReader) Owns(ctx context.Context, partitionID string) (bool, error) {
	r.mu.Lock()
	held := r.owned[partitionID]
	r.mu.Unlock()
	_, _, final, err := r.checkShared(ctx)
	if final {
		return false, nil
	}
	return held && err == nil, err
}

// Time limits at the end of a session. The last Commit precedes Close.
const (
	commitTimeout = 5 * time.Second
	lastPull      = 100 * time.Millisecond // for a running pull: its unread messages wait for ack_wait
	lastFlush     = 2 * time.Second
)

// Close implements stream.Reader. It tells the server to redeliver the unsettled messages.
func (r *sharedReader) Close() error {
	r.mu.Lock()
	already := r.closing
	r.closing = true
	r.mu.Unlock()
	if already {
		return nil
	}
	close(r.stopped)
	timer := time.NewTimer(lastPull)
	defer timer.Stop()
	select {
	case <-r.fetched:
	case <-timer.C:
	}
	r.mu.Lock()
	stops := r.stops
	r.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	r.goes.Wait()
	r.sendAcks()
	r.mu.Lock()
	replies := r.d.release()
	r.mu.Unlock()
	for _, reply := range replies {
		r.send(reply, nak)
	}
	r.count("naks", int64(len(replies)))
	ctx, cancel := context.WithTimeout(context.Background(), lastFlush)
	defer cancel()
	var err error
	if !r.silent.Load() {
		err = r.client.conn.FlushWithContext(ctx)
	}
	r.client.close()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.log().Warn("cannot give unsettled messages back; the server "+
			"delivers them again after ack_wait",
			"messages", len(replies), "error", err)
	}
	return nil
}
