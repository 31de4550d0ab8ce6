package kafka

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// reader reads as one member of the consumer group. It implements stream.AssignedReader.
//
// The client library calls assign, revoked and lost one after the other, with one exception: a
// revocation may begin while assign runs. The library ends the context of assign first. One
// goroutine polls the library for records and puts them into the partitions. It pauses while the
// records in the partitions take half of the option Memory or more (awaitRoom). From the return of
// a poll until its records are in the partitions, the library blocks rebalances. So records that
// were fetched for an earlier assignment never reach a later assignment.
type reader struct {
	s       *GroupSource
	o       stream.OpenOptions
	group   string
	count   func(name string, n int64) // adds to a counter of the route
	made    chan struct{}              // closed when the next three are set; assign may be called earlier
	client  *kgo.Client
	admin   *kadm.Client
	first   map[string]topicState // topics when the route was first opened; see GroupSource.first
	meta    *messages.MetaAdder
	abort   func()        // fails all requests of the client
	ended   chan struct{} // closed when the fetching goroutine has ended
	started time.Time
	health  *health
	stored  map[topicPartition]committed // as last fetched; owned by the library's goroutine
	ids     map[string][16]byte          // topic ids as first seen by this client; owned likewise
	unknown map[string]unknownTopic      // owned by the fetching goroutine

	mu        sync.Mutex // guards the fields below
	parts     map[topicPartition]*partition
	fetched   int64         // bytes in parts
	changed   chan struct{} // closed and replaced when parts changes
	room      chan struct{} // closed and replaced when records are taken
	last      topicPartition
	hasJoined bool
	closing   bool
	stop      context.CancelFunc // cancels the fetching goroutine; nil before it runs
	err       error              // error of the fetching goroutine; Read returns it
	limit     int                // size limit of a commit's metadata
	taking    *taking
}

// taking is a running call of Assignments.Assign, in which the engine takes over partitions.
type taking struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func newReader(s *GroupSource, o stream.OpenOptions, group string) *reader {
	return &reader{
		s: s, o: o, group: group, count: readers.Counter(s.host, &o, sourceCounters),
		meta: messages.NewMetaAdder(s.o.Meta.fields()), made: make(chan struct{}), ended: make(chan struct{}),
		parts: make(map[topicPartition]*partition), changed: make(chan struct{}), room: make(chan struct{}),
		limit: commitmeta.DefaultLimit, started: time.Now(), ids: make(map[string][16]byte),
		unknown: make(map[string]unknownTopic), health: &health{last: time.Now()},
	}
}

// start starts the fetching goroutine.
func (r *reader) start() {
	r.s.host.Go("kafka/fetch", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r.mu.Lock()
		closing := r.closing
		r.stop = cancel
		r.mu.Unlock()
		if closing {
			return nil
		}
		defer close(r.ended)
		r.fetch(ctx)
		return nil
	})
}

// fetch polls the client for records until ctx is done or an error ends the route. Each poll takes
// all records that the client has, because the client sends the next fetch only then.
func (r *reader) fetch(ctx context.Context) {
	for r.awaitRoom(ctx) == nil {
		polled := r.client.PollFetches(ctx)
		unknown, err := r.take(ctx, polled)
		r.client.AllowRebalance()
		if err == nil && len(unknown) > 0 {
			err = r.verify(ctx, unknown)
		}
		if err != nil && ctx.Err() == nil {
			r.fail(err)
			return
		}
	}
}

// awaitRoom waits while the records in the partitions take half of the option Memory or more. The
// other half of Memory is for the client's buffers.
func (r *reader) awaitRoom(ctx context.Context) error {
	for {
		r.mu.Lock()
		full, room := r.fetched >= int64(r.s.o.Memory)/2, r.room
		r.mu.Unlock()
		if !full {
			return ctx.Err()
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unknownTopic is the period in which fetches of a topic have failed because a broker does not know
// it.
type unknownTopic struct{ first, last time.Time }

// unknownLimit bounds the time for which a topic may be unknown to a broker. A broker may learn of
// a topic later than the other brokers, and after a restart it may know no topic for a moment.
const unknownLimit = 5 * time.Second

// verify is called when a broker does not know topics that the client has requested. A topic may
// be unknown for unknownLimit. If a topic is unknown for longer, or if it was recreated, verify
// returns an error that ends the route. The route then starts with a new client, because a client
// never accepts another id of a topic.
func (r *reader) verify(ctx context.Context, topics []string) error {
	m, err := r.admin.Metadata(ctx, topics...)
	if err != nil {
		return nil // the next fetch fails again
	}
	return r.checkTopics(m, topics, time.Now())
}

// checkTopics implements verify with the metadata m of the topics at the time now.
func (r *reader) checkTopics(m kadm.Metadata, topics []string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		detail, ok := m.Topics[p.key.topic]
		if ok && detail.Err == nil &&
			partitionID(m.Cluster, p.key.topic, detail.ID, p.key.num) != p.part.ID {
			return recreatedError(p.key.topic)
		}
	}
	for _, topic := range topics {
		u := r.unknown[topic]
		if now.Sub(u.last) > unknownLimit {
			u.first = now
		}
		u.last = now
		r.unknown[topic] = u
		if now.Sub(u.first) <= unknownLimit {
			continue
		}
		if err := m.Topics[topic].Err; isUnknownTopic(err) {
			return topicError(topic, err)
		}
		return recreatedError(topic) // the client has an old id, and the other brokers the new one
	}
	return nil
}

// take puts polled records into their partitions. It returns the topics that a broker does not
// know, and an error if the route must end.
func (r *reader) take(ctx context.Context, polled kgo.Fetches) (unknown []string, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	polled.EachPartition(func(f kgo.FetchTopicPartition) {
		key := topicPartition{f.Topic, f.Partition}
		p := r.parts[key]
		if p != nil && p.phase == reading {
			if len(p.fetched) == 0 {
				p.ready = time.Since(r.started) + r.o.Linger
			}
			r.fetched += p.add(f.Records)
		}
		if len(f.Records) > 0 {
			delete(r.unknown, f.Topic)
		}
		if f.Err == nil || ctx.Err() != nil {
			return
		}
		switch reactionTo(f.Err) {
		case stopPartition:
			r.stopReading(p, f.Err)
		case failRoute:
			failed = fetchError(r.group, key, f.Err)
		case verifyTopic:
			unknown = append(unknown, f.Topic)
		case retryFetch:
			r.s.host.Log().Debug("fetch failed; retrying", "topic", f.Topic,
				"partition", f.Partition, "error", f.Err)
		}
	})
	r.wake()
	return unknown, failed
}

// stopReading stops reading a partition that stays assigned. The caller holds mu.
func (r *reader) stopReading(p *partition, err error) {
	if p == nil || p.phase != reading {
		return
	}
	p.phase = stopped
	r.client.PauseFetchPartitions(map[string][]int32{p.key.topic: {p.key.num}})
	r.count("partitions_stopped", 1)
	r.s.host.Fault(stoppedError(p.part.Name, p.fetchedTo(), err))
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.wake()
}

// wake makes a waiting Read check the partitions again. The caller holds mu.
func (r *reader) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Read implements stream.Reader. All records of a batch are of one partition. A batch may wait for
// more records of its partition, but never for records of other partitions.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	for {
		r.mu.Lock()
		used, wait, err := r.fill(b, time.Since(r.started))
		changed := r.changed
		r.mu.Unlock()
		switch {
		case len(b.Spans) > 0:
			addMeta(r.meta, b, used, r.count)
			recycle(used)
			return nil
		case err != nil:
			return err
		}
		if err := awaitChange(ctx, changed, wait); err != nil {
			return err
		}
	}
}

// awaitChange waits until changed is closed. If wait is not 0, it waits no longer than that.
func awaitChange(ctx context.Context, changed <-chan struct{}, wait time.Duration) error {
	var ready <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		ready = timer.C
	}
	select {
	case <-changed:
	case <-ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// fill appends records of the next partition that is ready, in round-robin order after the
// partition of the last batch. If no partition is ready, wait is the time until one is ready, or 0
// if this time is unknown. The error io.EOF means that everything was read (only with
// OpenOptions.Once). The caller holds mu.
func (r *reader) fill(b *stream.Batch, now time.Duration) (used []*kgo.Record, wait time.Duration,
	err error) {
	keys := slices.SortedFunc(maps.Keys(r.parts), compareKeys)
	i, found := slices.BinarySearchFunc(keys, r.last, compareKeys)
	if found {
		i++
	}
	full := r.fetched >= int64(r.s.o.Memory)/2
	done := r.o.Once && r.hasJoined
	for _, key := range slices.Concat(keys[i:], keys[:i]) {
		p := r.parts[key]
		switch {
		case len(p.fetched) == 0 || p.phase != reading && p.phase != stopped:
		case !full && now < p.ready && !p.fills(b.Limits()) && !(r.o.Once && p.fetchedTo() >= p.end):
			if left := p.ready - now; wait == 0 || left < wait {
				wait = left
			}
		default:
			if used := r.fillFrom(b, p, now); len(b.Spans) > 0 {
				r.last = key
				return used, 0, nil
			}
		}
		done = done && p.atEnd()
	}
	switch {
	case r.err != nil:
		return nil, 0, r.err
	case done:
		return nil, 0, io.EOF
	}
	return nil, wait, nil
}

func (r *reader) fillFrom(b *stream.Batch, p *partition, now time.Duration) []*kgo.Record {
	used, bytes := p.fill(b)
	p.ready = now + r.o.Linger
	if bytes > 0 {
		r.fetched -= bytes
		close(r.room)
		r.room = make(chan struct{})
	}
	return used
}

func compareKeys(a, b topicPartition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.num, b.num))
}

// Owns implements stream.AssignedReader. It confirms the membership by a heartbeat to the group's
// coordinator.
func (r *reader) Owns(ctx context.Context, partitionID string) (bool, error) {
	r.mu.Lock()
	held := false
	for _, p := range r.parts {
		held = held || p.part.ID == partitionID && p.phase != revoking
	}
	r.mu.Unlock()
	if !held {
		return false, nil
	}
	member, generation := r.client.GroupMetadata()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = r.group, member, generation
	if r.s.o.Instance != "" {
		req.InstanceID = &r.s.o.Instance
	}
	res, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return false, fmt.Errorf("heartbeat: %w", err)
	}
	return ownership(res.ErrorCode)
}

// leaveTimeout bounds the request to leave the group.
const leaveTimeout = 5 * time.Second

// Close implements stream.Reader.
func (r *reader) Close() error {
	r.mu.Lock()
	already := r.closing
	r.closing = true
	t, stop := r.taking, r.stop
	r.mu.Unlock()
	if already {
		return nil
	}
	if t != nil {
		t.cancel()
	}
	if stop != nil {
		stop()
		<-r.ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := r.client.LeaveGroupContext(ctx); err != nil {
		r.s.host.Log().Warn("cannot leave the group; its partitions move when the session ends",
			"group", r.group, "error", err)
		r.abort() // otherwise Close waits for the brokers
	}
	r.client.CloseAllowingRebalance()
	r.abort()
	return nil
}
