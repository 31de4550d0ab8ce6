package streamtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// BrokerSource is a member of a [Broker]'s group: a minimal [stream.AssignedSource]. A position is
// the offset of the next record, as in a Kafka commit.
type BrokerSource struct {
	broker *Broker
	host   stream.Host
	member string
	// MetadataLimit bounds the metadata of a committed offset. Zero means commitmeta.DefaultLimit.
	MetadataLimit int
	// BatchRecords bounds the records of a batch, in addition to the batch's own limits. Zero means
	// no further limit.
	BatchRecords int
}

// NewBrokerSource returns a source that joins the group as member when it is opened.
func NewBrokerSource(b *Broker, h stream.Host, member string) *BrokerSource {
	return &BrokerSource{broker: b, host: h, member: member}
}

// HasAssignments implements stream.AssignedSource.
func (s *BrokerSource) HasAssignments() bool { return true }

// Open implements stream.Source.
func (s *BrokerSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if o.Assignments == nil {
		return nil, errors.New("the host of a broker's source must offer OpenOptions.Assignments")
	}
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	r := &brokerReader{
		s: s, o: o, leave: leave, left: make(chan struct{}), changed: make(chan struct{}),
		parts: make(map[string]*readPartition),
	}
	s.host.Go("broker/group", func(host context.Context) error {
		defer close(r.left)
		stop := context.AfterFunc(host, leave)
		defer stop()
		r.serve(ctx)
		return nil
	})
	return r, nil
}

// brokerReader is the stream.AssignedReader of a BrokerSource.
type brokerReader struct {
	s     *BrokerSource
	o     stream.OpenOptions
	leave context.CancelFunc
	left  chan struct{} // closed when the group's goroutine has ended

	mu      sync.Mutex // guards the fields below
	session *session
	parts   map[string]*readPartition
	changed chan struct{} // closed and replaced when parts change
	last    string        // partition of the last batch, which is read last
}

// readPartition is a partition that the broker has assigned.
type readPartition struct {
	part   *stream.Partition
	number uint32 // 0 until Assign has returned without an error
	next   int64
	above  []stream.Range // settled ranges above next
	paused bool           // it is being revoked
	stored int64          // committed by this session

	cancel   context.CancelFunc // of Assign
	assigned chan struct{}      // closed when Assign has returned
}

// serve keeps the reader in the group, and handles the broker's requests, until ctx is done. When
// the broker ends the session, serve joins again.
func (r *brokerReader) serve(ctx context.Context) {
	for ctx.Err() == nil {
		s := r.s.broker.join(r.s.member)
		r.mu.Lock()
		r.session = s
		r.mu.Unlock()
		for {
			e, err := s.next(ctx)
			if err != nil {
				break
			}
			r.handle(ctx, s, e)
		}
		r.lose()
	}
}

func (r *brokerReader) handle(ctx context.Context, s *session, e groupEvent) {
	for _, id := range e.assigned {
		p := &readPartition{part: &stream.Partition{ID: id, Name: id},
			assigned: make(chan struct{})}
		assigning, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		r.mu.Lock()
		r.parts[id] = p
		r.mu.Unlock()
		// Assign may wait for the sink, and must not delay a revocation
		r.s.host.Go("broker/assign", func(context.Context) error {
			defer close(p.assigned)
			r.assign(assigning, s, p)
			return nil
		})
	}
	if len(e.revoked) == 0 {
		return
	}
	r.mu.Lock()
	for _, id := range e.revoked {
		if p := r.parts[id]; p != nil {
			p.paused = true
		}
	}
	r.mu.Unlock()
	r.awaitAssigned(e.revoked)
	r.revoke(ctx, s, e.revoked)
}

// revoke releases partitions in an orderly way. If the session ends meanwhile, the partitions are
// lost with it.
func (r *brokerReader) revoke(ctx context.Context, s *session, ids []string) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	r.s.host.Go("broker/revoke", func(context.Context) error {
		defer cancel()
		select {
		case <-s.gone:
		case <-over:
		}
		return nil
	})
	r.o.Assignments.Revoke(ctx, ids)
	close(over)
	select {
	case <-s.gone:
	default:
		r.remove(ids)
		s.release(ids)
	}
}

// awaitAssigned cancels calls of Assign for these partitions, and waits for them.
func (r *brokerReader) awaitAssigned(ids []string) {
	for _, id := range ids {
		r.mu.Lock()
		p := r.parts[id]
		r.mu.Unlock()
		if p != nil {
			p.cancel()
			<-p.assigned
		}
	}
}

func (r *brokerReader) assign(ctx context.Context, s *session, p *readPartition) {
	at, stored, err := s.position(p.part.ID)
	if err != nil {
		return // the session has ended
	}
	o := stream.PartitionOffer{Part: *p.part, Watermark: stream.Position{Num: at.offset}}
	if stored {
		o.Origin = stream.FromOthers
		if above, own := commitmeta.Decode(at.metadata, p.part.ID, at.offset); own {
			o.Origin, o.Above = stream.FromCommit, above
		}
	}
	got, err := r.o.Assignments.Assign(ctx, []stream.PartitionOffer{o})
	if err != nil || got[0].Err != nil {
		return // the engine has reported the error; the partition stays unread
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.next, p.above, p.stored = got[0].Mark.Watermark.Num, got[0].Mark.Above, at.offset
	p.number = got[0].Number
	r.wake()
}

// wake makes Read check the partitions again. The caller holds mu.
func (r *brokerReader) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// lose removes all partitions at the end of a session, and reports to the engine that they are
// lost.
func (r *brokerReader) lose() {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.parts))
	r.mu.Unlock()
	r.awaitAssigned(ids)
	r.remove(ids)
	r.o.Assignments.Lost(ids)
}

func (r *brokerReader) remove(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.parts, id)
	}
}

// Read implements stream.Reader.
func (r *brokerReader) Read(ctx context.Context, b *stream.Batch) error {
	for {
		done, ours, theirs := r.fill(b)
		switch {
		case len(b.Spans) > 0:
			return nil
		case done && r.o.Once:
			return io.EOF
		}
		select {
		case <-ours:
		case <-theirs:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fill appends records of one partition to b. It tries the partitions in turn, beginning after the
// partition of the last batch, and uses the first one with data. If it finds no data, done is true
// if the reader has partitions and has read all of them to their ends. ours is closed when the
// partitions of the reader change, and theirs when anything in the broker changes.
func (r *brokerReader) fill(b *stream.Batch) (done bool, ours, theirs <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Sorted(maps.Keys(r.parts))
	i, _ := slices.BinarySearch(ids, r.last+"\x00")
	ids = append(ids[i:], ids[:i]...)
	done, theirs = len(ids) > 0, r.s.broker.change()
	for _, id := range ids {
		p := r.parts[id]
		if p.number == 0 || p.paused {
			done = false
			continue
		}
		if r.readFrom(p, b); len(b.Spans) > 0 {
			r.last = id
			break
		}
	}
	return done, r.changed, theirs
}

// readFrom appends records of p until b is full or a settled range begins. It adds the span that
// covers them. The span includes offsets without a record, also those after the last record.
func (r *brokerReader) readFrom(p *readPartition, b *stream.Batch) {
	for len(p.above) > 0 && p.above[0].From.Num <= p.next {
		p.next = max(p.next, p.above[0].To.Num)
		p.above = p.above[1:]
	}
	from := p.next
	for _, rec := range r.s.broker.fetch(p.part.ID, from) {
		if len(p.above) > 0 && p.next >= p.above[0].From.Num || b.Full() ||
			r.s.BatchRecords > 0 && b.Origins >= r.s.BatchRecords {
			break
		}
		p.next++
		if rec.gap {
			continue
		}
		b.Records = append(b.Records, stream.Record{
			Off: uint32(len(b.Data)), Len: uint32(len(rec.value)),
			Origin: stream.Position{Num: p.next},
		})
		b.Data = append(append(b.Data, rec.value...), '\n')
		b.Origins++
		b.Added++
	}
	if p.next == from {
		return
	}
	span := stream.Span{Part: p.part, Bytes: len(b.Data), Assignment: p.number}
	span.From.Num, span.To.Num = from, p.next
	b.Spans = append(b.Spans, span)
}

// Commit implements stream.Reader.
func (r *brokerReader) Commit(_ context.Context, marks []stream.Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []offsetCommit
	for i := range marks {
		m := &marks[i]
		p := r.parts[m.Part.ID]
		if p == nil || p.number != m.Assignment || m.Watermark.Num < p.stored {
			continue
		}
		limit := r.s.MetadataLimit
		if limit == 0 {
			limit = commitmeta.DefaultLimit
		}
		text, stored := commitmeta.Encode(*m, limit)
		m.Above = stored
		list = append(list, offsetCommit{id: m.Part.ID, offset: m.Watermark.Num, metadata: text})
	}
	if len(list) == 0 {
		return nil
	}
	if err := r.session.commit(list); err != nil {
		return fmt.Errorf("commit %d partitions: %w", len(list), err)
	}
	for _, c := range list {
		r.parts[c.id].stored = c.offset
	}
	return nil
}

// Owns implements stream.AssignedReader.
func (r *brokerReader) Owns(_ context.Context, partitionID string) (bool, error) {
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	return s.owns(partitionID)
}

// Close implements stream.Reader.
func (r *brokerReader) Close() error {
	r.leave()
	<-r.left
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		r.session.leave()
	}
	return nil
}
