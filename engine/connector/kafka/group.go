package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// joined is called when this member has joined the group and begins a new session. given has the
// partitions that are new to this member. If given is empty, there are none to assign. Otherwise
// the client library calls assign next.
func (r *reader) joined(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	r.count("rebalances", 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasJoined = r.hasJoined || len(given) == 0
	r.wake()
}

// offsetsFetched keeps the metadata of the group's committed offsets, because the client library
// does not pass it to assign.
func (r *reader) offsetsFetched(_ context.Context, _ *kgo.Client, res *kmsg.OffsetFetchResponse) error {
	r.stored = make(map[topicPartition]committed)
	for _, g := range res.Groups {
		for _, t := range g.Topics {
			name := t.Topic
			for known, id := range r.ids {
				if name == "" && id == t.TopicID {
					name = known
				}
			}
			for _, p := range t.Partitions {
				c := committed{offset: p.Offset, epoch: p.LeaderEpoch}
				if p.Metadata != nil {
					c.metadata = *p.Metadata
				}
				r.stored[topicPartition{name, p.Partition}] = c
			}
		}
	}
	return nil
}

type offsets = map[string]map[int32]kgo.Offset

// assign asks the engine where to read the partitions that the group has given, and returns these
// positions to the client. It leaves out partitions that must not be read. ctx ends with the
// group's session.
func (r *reader) assign(ctx context.Context, given offsets) (offsets, error) {
	<-r.made
	keys := keysOf(given)
	if len(keys) == 0 {
		return given, nil
	}
	parts, offers, err := r.offersSoon(ctx, keys)
	if err != nil {
		if errors.Is(err, errRecreated) {
			r.fail(err) // this client never reads the new topic
		}
		return nil, err
	}
	if len(offers) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hasJoined = true
		r.wake()
		return offsets{}, nil
	}
	got, err := r.takeOver(ctx, parts, offers)
	if err != nil {
		return nil, err
	}
	out := make(offsets)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range parts {
		if r.parts[p.key] != p || p.phase != assigning {
			continue // it was revoked meanwhile
		}
		if got[i].Err != nil {
			p.phase = stopped
			r.count("partitions_stopped", 1)
			continue
		}
		p.phase, p.next, p.above = reading, got[i].Mark.Watermark.Num, got[i].Mark.Above
		at := kgo.NewOffset().At(p.next)
		if c := r.stored[p.key]; c.offset == p.next && c.epoch >= 0 && offers[i].Origin != stream.FromStart {
			at = at.WithEpoch(c.epoch)
			p.epochs = []epochStart{{p.next - 1, c.epoch}}
		}
		if out[p.key.topic] == nil {
			out[p.key.topic] = make(map[int32]kgo.Offset)
		}
		out[p.key.topic][p.key.num] = at
		r.client.ResumeFetchPartitions(map[string][]int32{p.key.topic: {p.key.num}})
	}
	r.hasJoined = true
	r.wake()
	return out, nil
}

// offersBackoff has the waits between the attempts of offersSoon. offersSoon does not return
// temporary errors, but repeats the requests: an error would end the session and cancel the
// deliveries of all partitions.
var offersBackoff = backoff.Exponential(100*time.Millisecond, 2, 5*time.Second).Full()

// offersSoon calls offers until it succeeds, with offersBackoff between the attempts. If a retry
// cannot help, it returns the error.
func (r *reader) offersSoon(ctx context.Context,
	keys []topicPartition) (parts []*partition, offers []stream.PartitionOffer, err error) {
	err = retry.Do(ctx, func(ctx context.Context) (err error) {
		parts, offers, err = r.offers(ctx, keys)
		return err
	}, retry.Options{Policy: offersBackoff, MaxAttempts: -1, Classify: func(err error) retry.Action {
		if isFatal(err) || isUnknownTopic(err) || errors.Is(err, errRecreated) {
			return retry.Fail
		}
		return retry.Retry
	}})
	return parts, offers, err
}

// takeOver passes to the engine the partitions that the group has given. The engine returns the
// positions to read from. If the group revokes partitions meanwhile, takeOver is canceled.
func (r *reader) takeOver(ctx context.Context, parts []*partition,
	offers []stream.PartitionOffer) ([]stream.Assignment, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &taking{cancel, make(chan struct{})}
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return nil, context.Canceled
	}
	r.taking = t
	for _, p := range parts {
		r.parts[p.key] = p
	}
	r.mu.Unlock()
	got, err := r.o.Assignments.Assign(ctx, offers)
	if err == nil {
		err = r.keepStart(ctx, parts, offers, got)
	}
	r.mu.Lock()
	r.taking = nil
	if err != nil {
		for _, p := range parts {
			if r.parts[p.key] == p {
				delete(r.parts, p.key)
			}
		}
	} else {
		for i, p := range parts { // before done: withdraw reads the numbers
			p.number = got[i].Number
		}
	}
	r.mu.Unlock()
	if err != nil && got != nil {
		r.o.Assignments.Lost(idsOf(parts))
	}
	close(t.done)
	return got, err
}

// offers asks the brokers for topic ids and the bounds of the logs, and returns the partitions with
// the positions at which they can resume.
func (r *reader) offers(ctx context.Context, keys []topicPartition) ([]*partition, []stream.PartitionOffer, error) {
	topics := topicsOf(keys)
	m, err := r.admin.Metadata(ctx, topics...)
	if err != nil {
		return nil, nil, brokerError(err, r.s.o.Brokers)
	}
	starts, err := r.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, nil, fmt.Errorf("list offsets: %w", err)
	}
	list := r.admin.ListCommittedOffsets
	if r.s.o.Isolation == readUncommitted {
		list = r.admin.ListEndOffsets
	}
	ends, err := list(ctx, topics...)
	if err != nil {
		return nil, nil, fmt.Errorf("list offsets: %w", err)
	}
	found := make([]bounds, len(keys))
	for i, key := range keys {
		detail := m.Topics[key.topic]
		start, _ := starts.Lookup(key.topic, key.num)
		end, _ := ends.Lookup(key.topic, key.num)
		if err := errors.Join(detail.Err, start.Err, end.Err); err != nil {
			return nil, nil, topicError(key.topic, err)
		}
		if id, ok := r.ids[key.topic]; ok && id != detail.ID {
			return nil, nil, recreatedError(key.topic)
		}
		r.ids[key.topic], found[i] = detail.ID, bounds{start.Offset, end.Offset}
	}
	parts, offers := r.choose(m.Cluster, keys, found)
	return parts, offers, nil
}

// choose returns the partitions of keys and their offers, the positions at which they resume. It
// omits and reports a partition if its committed position does not fit the log.
func (r *reader) choose(cluster string, keys []topicPartition,
	logs []bounds) (parts []*partition, offers []stream.PartitionOffer) {
	for i, key := range keys {
		part := stream.Partition{ID: partitionID(cluster, key.topic, r.ids[key.topic], key.num), Name: key.String()}
		c, ok := r.stored[key]
		if !ok {
			c.offset = -1
		}
		log := logs[i]
		if c.offset < 0 && r.isNew(key) {
			log.end = log.start // start: latest must skip no records
		}
		offer, lost, err := offerOf(part, c, log, &r.s.o)
		if err != nil {
			r.count("partitions_stopped", 1)
			r.s.host.Fault(err)
			continue
		}
		if lost > 0 {
			r.count("offsets_lost", lost)
			r.s.host.Fault(fmt.Errorf("partition %q: %d offsets from %d on were deleted before "+
				"they were read", part.Name, lost, c.offset))
		}
		// commits do not lower the group's offset unless it was beyond the log's end
		stored := min(c.offset, offer.Watermark.Num)
		parts = append(parts, &partition{key: key, part: &part, end: logs[i].end, stored: stored})
		offers = append(offers, offer)
	}
	return parts, offers
}

// isNew reports whether a partition was created after this process first opened the route. The
// source reads such a partition from its start, even with `start: latest`. The client notices new
// partitions up to 30 s after their creation, and records that are written in this time would
// otherwise be skipped. All partitions of a recreated topic are new.
func (r *reader) isNew(key topicPartition) bool {
	old, ok := r.first[key.topic]
	switch {
	case r.first == nil || old.partitions == math.MaxInt:
		return false
	case !ok || int(key.num) >= old.partitions:
		return true
	}
	return r.ids[key.topic] != old.id
}

// keepStart commits the start positions of partitions that begin at the end of their logs. Without
// this commit, a restart before the first regular commit would begin at the end that the log has by
// then, and skip the records that were written meanwhile.
func (r *reader) keepStart(ctx context.Context, parts []*partition, offers []stream.PartitionOffer,
	got []stream.Assignment) error {
	if r.s.o.Start != startLatest {
		return nil
	}
	var marks []stream.Mark
	r.mu.Lock()
	for i := range offers {
		if offers[i].Origin == stream.FromStart && got[i].Err == nil {
			m := got[i].Mark
			m.Assignment = got[i].Number
			marks = append(marks, m)
			parts[i].number = m.Assignment
		}
	}
	r.mu.Unlock()
	if len(marks) == 0 {
		return nil
	}
	return r.Commit(ctx, marks)
}

// revoked is called when the group takes partitions away from this member. It waits until the
// engine has ended the assignments of these partitions, but at most for the time of the option
// RevokeTimeout. Then another member gets the partitions.
func (r *reader) revoked(ctx context.Context, _ *kgo.Client, given map[string][]int32) {
	ids := r.withdraw(given)
	if len(ids) > 0 {
		ctx, cancel := context.WithTimeout(ctx, r.s.o.RevokeTimeout)
		defer cancel()
		r.o.Assignments.Revoke(ctx, ids)
	}
	r.remove(given)
}

// lost is called when this member has lost partitions without a revocation. It ends their
// assignments at once, because another member may already own the partitions.
func (r *reader) lost(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	ids := r.withdraw(given)
	r.mu.Lock()
	r.hasJoined = false
	r.mu.Unlock()
	r.remove(given)
	if len(ids) > 0 {
		r.count("sessions_lost", 1)
		r.o.Assignments.Lost(ids)
	}
}

// withdraw ends the reading of partitions. If the engine is assigning partitions, withdraw first
// cancels the assignment and waits for its end. It returns the ids of the partitions that the
// engine knows, or nil if the reader is being closed.
func (r *reader) withdraw(given map[string][]int32) (ids []string) {
	r.mu.Lock()
	t := r.taking
	r.mu.Unlock()
	if t != nil {
		t.cancel()
		<-t.done
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil
	}
	for _, p := range r.of(given) {
		if p.number != 0 {
			ids = append(ids, p.part.ID)
		}
		p.phase = revoking
		r.fetched -= p.discard()
	}
	close(r.room)
	r.room = make(chan struct{})
	r.wake()
	return ids
}

// of returns the states of partitions. given has their numbers by topic. The result omits
// partitions that this reader does not own. The caller holds mu.
func (r *reader) of(given map[string][]int32) (out []*partition) {
	for topic, nums := range given {
		for _, num := range nums {
			if p := r.parts[topicPartition{topic, num}]; p != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

func (r *reader) remove(given map[string][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.of(given) {
		delete(r.parts, p.key)
	}
	r.wake()
}

// ownership reports whether the response to a heartbeat confirms that the member owns its
// partitions. code is the error code of the response. During a rebalance, a member owns its
// partitions until it gives them up.
func ownership(code int16) (bool, error) {
	err := kerr.ErrorForCode(code)
	switch {
	case err == nil, errors.Is(err, kerr.RebalanceInProgress):
		return true, nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration),
		errors.Is(err, kerr.FencedInstanceID):
		return false, nil
	}
	return false, fmt.Errorf("heartbeat: %w", err)
}

func keysOf(given offsets) (keys []topicPartition) {
	for topic, nums := range given {
		for num := range nums {
			keys = append(keys, topicPartition{topic, num})
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func topicsOf(keys []topicPartition) []string {
	set := make(map[string]bool)
	for _, k := range keys {
		set[k.topic] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func idsOf(parts []*partition) (ids []string) {
	for _, p := range parts {
		ids = append(ids, p.part.ID)
	}
	return ids
}
