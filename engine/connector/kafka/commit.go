package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// Commit implements stream.Reader: it commits the progress in marks ([stream.Mark]) to the group.
// It skips a mark if the partition's assignment has ended, even if it ends during the commit. If a
// broker refuses the metadata as too large, Commit shortens it and tries again.
func (r *reader) Commit(ctx context.Context, marks []stream.Mark) error {
	for {
		prepared := r.prepare(marks)
		if len(prepared) == 0 {
			return nil
		}
		err := r.commit(ctx, prepared)
		if err == nil {
			r.count("commits", 1)
			return nil
		}
		if !errors.Is(err, kerr.OffsetMetadataTooLarge) || !r.shorten() {
			return fmt.Errorf("%d partitions of group %q: %w", len(prepared), r.group, err)
		}
	}
}

// shorten halves r.limit, the size limit of a commit's metadata. It returns false if the limit is
// already at its minimum.
func (r *reader) shorten() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit <= commitmeta.MinLimit {
		return false
	}
	r.limit = max(r.limit/2, commitmeta.MinLimit)
	r.s.host.Log().Warn("the brokers refuse the length of a commit's metadata; it is shortened", "bytes", r.limit)
	return true
}

// prepared is the commit of one partition that is not sent yet.
type prepared struct {
	p        *partition
	at       kgo.EpochOffset
	metadata string
}

// prepare returns the commits for marks. It leaves out marks of ended assignments, and marks with a
// watermark below the committed offset. The offset of a commit is the watermark: all records below
// it are delivered, dead-lettered or dropped. Its metadata has the settled ranges above the
// watermark. If not all ranges fit into the metadata, prepare counts the ranges that do not fit,
// and removes them from the mark.
func (r *reader) prepare(marks []stream.Mark) map[topicPartition]prepared {
	r.mu.Lock()
	defer r.mu.Unlock()
	byID := make(map[string]*partition, len(r.parts))
	for _, p := range r.parts {
		byID[p.part.ID] = p
	}
	out := make(map[topicPartition]prepared)
	for i := range marks {
		m := &marks[i]
		p := byID[m.Part.ID]
		if p == nil || p.number != m.Assignment || m.Watermark.Num < p.stored {
			continue
		}
		text, stored := commitmeta.Encode(*m, r.limit)
		if cut := len(m.Above) - len(stored); cut > 0 {
			r.count("commit_ranges_cut", int64(cut))
		}
		m.Above = stored
		out[p.key] = prepared{p, kgo.EpochOffset{Epoch: p.epochAt(m.Watermark.Num), Offset: m.Watermark.Num}, text}
	}
	return out
}

func (r *reader) commit(ctx context.Context, list map[topicPartition]prepared) (err error) {
	at := make(map[string]map[int32]kgo.EpochOffset)
	for key, c := range list {
		if at[key.topic] == nil {
			at[key.topic] = make(map[int32]kgo.EpochOffset)
		}
		at[key.topic][key.num] = c.at
	}
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error { return r.complete(req, list) })
	r.client.CommitOffsetsSync(ctx, at,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, res *kmsg.OffsetCommitResponse, failed error) {
			if err = failed; err == nil {
				err = r.committed(res, list)
			}
		})
	if errors.Is(err, errNothingLeft) {
		return nil
	}
	return err
}

var errNothingLeft = errors.New("no partition of the commit is assigned any more")

// complete adds the metadata to a commit request. It removes partitions from the request if their
// assignment has ended since prepare.
func (r *reader) complete(req *kmsg.OffsetCommitRequest, list map[topicPartition]prepared) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	topics := req.Topics[:0]
	for _, t := range req.Topics {
		kept := t.Partitions[:0]
		for _, p := range t.Partitions {
			key := topicPartition{t.Topic, p.Partition}
			c, ok := list[key]
			if !ok || r.parts[key] != c.p {
				continue
			}
			p.Metadata = &c.metadata
			kept = append(kept, p)
		}
		if t.Partitions = kept; len(kept) > 0 {
			topics = append(topics, t)
		}
	}
	if req.Topics = topics; len(topics) == 0 {
		return errNothingLeft
	}
	return nil
}

// committed records the offsets that the broker has stored. If the broker has refused partitions,
// committed returns the error of one of them: OffsetMetadataTooLarge if any partition has this
// error, because Commit then tries again.
func (r *reader) committed(res *kmsg.OffsetCommitResponse, list map[topicPartition]prepared) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refused error
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				if refused == nil || errors.Is(err, kerr.OffsetMetadataTooLarge) {
					refused = fmt.Errorf("partition %s/%d: %w", t.Topic, p.Partition, err)
				}
				continue
			}
			if c, ok := list[topicPartition{t.Topic, p.Partition}]; ok {
				c.p.stored = max(c.p.stored, c.at.Offset)
			}
		}
	}
	return refused
}
