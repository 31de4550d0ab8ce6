package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// transactionalSink writes records and the offsets of the source's group in one transaction. It
// implements stream.PartitionLedger. The ledger, the list of records that are delivered,
// dead-lettered or dropped, consists of the group's offsets and their metadata.
//
// Each source partition has its own transactional id, made of group, topic and number. Take
// initializes the id. The brokers then abort an open transaction of the partition's earlier owner.
// They also refuse all later transactions of that owner, even if it was suspended for hours.
type transactionalSink struct {
	*TopicSink
	source  *GroupSource
	route   string
	group   string
	cluster string // id of the sink's cluster; set by Open

	mu    sync.Mutex               // guards owned
	owned map[uint32]*transactions // by assignment
}

var (
	_ stream.SourceBoundSink = (*TopicSink)(nil)
	_ stream.PartitionLedger = (*transactionalSink)(nil)
	_ stream.DeadLetterSink  = (*transactionalSink)(nil)
	_ stream.Worker          = (*transactionalSink)(nil)
)

// transactionalCounters are shown from startup, in addition to sinkCounters.
var transactionalCounters = []string{
	"transactions", "transactions_aborted", "duplicates", "dead_letters_sent",
}

// BindSource implements stream.SourceBoundSink.
func (s *TopicSink) BindSource(source stream.Source, route string) (stream.Sink, error) {
	if !s.o.Transactional {
		return nil, nil
	}
	from, ok := source.(*GroupSource)
	if !ok {
		return nil, stream.OptionErrorf("transactional", "needs source kafka: its offsets are "+
			"part of the transaction; use that source, or leave transactional out")
	}
	if !slices.ContainsFunc(s.o.Brokers,
		func(b string) bool { return slices.Contains(from.o.Brokers, b) }) {
		return nil, stream.OptionErrorf("transactional", "needs source and sink in one cluster, "+
			"and their brokers have none in common; write the same brokers for both, or leave "+
			"transactional out")
	}
	if from.o.reads(s.o.DeadLetterTopic) {
		return nil, stream.OptionErrorf("dead_letter_topic", "%q is a topic of the source, so "+
			"that dead letters would be read again; name another topic", s.o.DeadLetterTopic)
	}
	group, err := from.groupOf(route)
	if err != nil {
		return nil, err
	}
	for _, name := range transactionalCounters {
		s.host.Count(name, 0)
	}
	from.bindTransactions(route)
	return &transactionalSink{TopicSink: s, source: from, route: route, group: group,
		owned: make(map[uint32]*transactions)}, nil
}

// Open implements stream.Sink.
func (s *transactionalSink) Open(ctx context.Context, o stream.SinkOptions) (err error) {
	s.cluster, err = s.open(ctx, o, s, oldTransactions())
	return err
}

// Close implements stream.Sink.
func (s *transactionalSink) Close() error {
	s.mu.Lock()
	for _, p := range s.owned {
		p.end(errReleased)
		p.closeProducer()
	}
	clear(s.owned)
	s.mu.Unlock()
	return s.TopicSink.Close()
}

// LedgerName implements stream.TransactionalSink.
func (s *transactionalSink) LedgerName() string {
	return fmt.Sprintf("offsets of group %q", s.group)
}

// Load implements stream.TransactionalSink. It always fails: the engine calls it only for sources
// without assigned partitions, and such a source cannot be combined with this sink.
func (s *transactionalSink) Load(context.Context) ([]stream.Mark, error) {
	return nil, errors.New("a transactional sink kafka needs a source that is assigned partitions")
}

// Compact implements stream.TransactionalSink. It does nothing: each commit replaces the previous
// one, so there are no entries to join.
func (s *transactionalSink) Compact(context.Context, []stream.Mark) error { return nil }

// Prune implements stream.TransactionalSink. It does nothing: the brokers delete the offsets of
// deleted topics themselves.
func (s *transactionalSink) Prune(context.Context, []string) error { return nil }

// maxTaking bounds the transactional ids that Take initializes concurrently.
const maxTaking = 16

// Take implements stream.PartitionLedger.
func (s *transactionalSink) Take(ctx context.Context, parts []stream.Taking,
) ([]stream.Taken, error) {
	made, err := s.fence(ctx, parts)
	if err == nil {
		var taken []stream.Taken
		if taken, err = s.begin(ctx, made, parts); err == nil {
			return taken, nil
		}
	}
	for _, p := range made {
		if p != nil {
			p.closeProducer()
		}
	}
	return nil, err
}

// fence initializes the transactional ids of partitions. After that, no transaction of an earlier
// owner can be committed. The result has an entry for each partition. After an error, some entries
// may be nil, and the caller closes the others.
func (s *transactionalSink) fence(ctx context.Context, parts []stream.Taking,
) ([]*transactions, error) {
	made, errs := make([]*transactions, len(parts)), make([]error, len(parts))
	slots := make(chan struct{}, maxTaking)
	var all sync.WaitGroup
	for i := range parts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if made[i], errs[i] = newTransactions(s, &parts[i]); errs[i] != nil {
				return
			}
			if _, _, err := made[i].producer.ProducerID(ctx); err != nil {
				errs[i] = fmt.Errorf("transactional id %q: %w", made[i].id, transactionError(err))
			}
		})
	}
	all.Wait()
	return made, firstError(errs)
}

// begin reads the offsets of fenced partitions, and starts the goroutines that run their
// transactions. If a partition has no committed offset, begin commits its start position. If
// MustExist is set, begin instead leaves such a partition out and closes its producer.
func (s *transactionalSink) begin(ctx context.Context, made []*transactions,
	parts []stream.Taking) ([]stream.Taken, error) {
	keys := make([]topicPartition, len(made))
	for i := range made {
		keys[i] = made[i].key
	}
	stored, err := s.storedOffsets(ctx, keys...)
	if err != nil {
		return nil, err
	}
	taken := make([]stream.Taken, len(parts))
	for i, p := range made {
		if taken[i].Found = stored.of(p); !taken[i].Found {
			if parts[i].MustExist {
				continue
			}
			p.progress = progressOf(&parts[i].Start)
			if err := p.commitOffsets(ctx, p.progress); err != nil {
				return nil, fmt.Errorf("store the start of partition %q: %w", p.part.Name, err)
			}
		}
		taken[i].Mark = p.progress.mark(p.part)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range made {
		if !taken[i].Found && parts[i].MustExist {
			p.closeProducer()
			continue
		}
		if old := s.owned[p.assignment]; old != nil {
			old.end(errReleased)
		}
		s.owned[p.assignment] = p
		s.host.Go("kafka/ownership", p.watch)
		s.host.Go("kafka/transactions", p.run)
	}
	return taken, nil
}

// Confirm implements stream.PartitionLedger.
func (s *transactionalSink) Confirm(assignments []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range assignments {
		if p := s.owned[n]; p != nil {
			p.confirm()
		}
	}
}

// Release implements stream.PartitionLedger.
func (s *transactionalSink) Release(assignments []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range assignments {
		if p := s.owned[n]; p != nil {
			p.end(errReleased)
			delete(s.owned, n)
		}
	}
}

// Deliver implements stream.Worker. It returns when the transaction of the batch has ended, or when
// ctx is done. The transaction owns copies of the records, and may still commit after a canceled
// Deliver has returned. Batches that were delivered before are not delivered again.
func (s *transactionalSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	kept := b.AppendKept(nil)
	messages, bytes, fates := s.messages(b, kept)
	if firstError(fates) != nil {
		err := settleAborted(b, kept, fates, s.o.topic != nil)
		verdict.Count(s.host, err, 0, 0)
		return stream.Report{}, err
	}
	j, err := s.store(ctx, b, messages)
	if err == nil && firstError(j.fates) != nil {
		err = settleAborted(b, kept, j.fates[:len(kept)], s.o.topic != nil)
	}
	verdict.Count(s.host, err, len(kept), bytes)
	return stream.Report{}, err
}

// messages returns the kept records (neither dropped nor dead-lettered) as messages. fates has an
// entry for each kept record: the error if no message can be made of the record, otherwise nil.
func (s *transactionalSink) messages(b *stream.Batch, kept []int) (out []*kgo.Record, bytes int64,
	fates []error) {
	t := s.makers.Get().(*messageMaker)
	defer s.makers.Put(t)
	t.begin(b)
	fates = make([]error, len(kept))
	records := make([]kgo.Record, len(kept))
	out = make([]*kgo.Record, 0, len(kept))
	for k, i := range kept {
		r := &records[k]
		if err := t.fill(r, b, i); err != nil {
			fates[k] = &messages.RecordError{Err: err}
			continue
		}
		out = append(out, r)
		bytes += int64(len(r.Value))
	}
	return out, bytes, fates
}

// Store implements stream.TransactionalSink.
func (s *transactionalSink) Store(ctx context.Context, spans []stream.Span) error {
	return s.do(ctx, newJob(spans))
}

// do delivers a job (a batch) in a transaction. If the brokers do not accept some of the job's
// records, j.fates has their errors, do returns nil, and none of the records was delivered.
func (s *transactionalSink) do(ctx context.Context, j *job) error {
	if len(j.spans) == 0 {
		return errors.New("kafka: a transaction needs the batch's position in the source")
	}
	first := &j.spans[0]
	s.mu.Lock()
	p := s.owned[first.Assignment]
	s.mu.Unlock()
	if p == nil || p.part.ID != first.Part.ID {
		return &stream.FencedError{Assignment: first.Assignment, Part: *first.Part,
			Err: errReleased}
	}
	if err := p.enqueue(j); err != nil {
		return err
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		p.withdraw(j)
		return context.Cause(ctx)
	}
}

// storedOffsets holds the offsets of a group with their metadata.
type storedOffsets map[topicPartition]committed

// of sets the progress of p from its stored offset, and reports whether there is one.
func (o storedOffsets) of(p *transactions) (found bool) {
	c, ok := o[p.key]
	if !ok || c.offset < 0 {
		return false
	}
	above, _ := commitmeta.Decode(c.metadata, p.part.ID, c.offset)
	p.progress = progress{watermark: c.offset}.with(above)
	return true
}

// transactionTimeout is the time after which brokers abort a transaction. Consumers with
// read_committed wait for open transactions. So the timeout also bounds their wait after a process
// has died.
const transactionTimeout = 10 * time.Second

// newTransactions returns the transactions of a partition, with a producer that is not connected.
func newTransactions(s *transactionalSink, t *stream.Taking) (*transactions, error) {
	key, err := parsePartition(t.Part.Name)
	if err != nil {
		return nil, err
	}
	if cluster, _, _ := strings.Cut(t.Part.ID, "/"); cluster != clusterName(s.cluster) {
		return nil, fmt.Errorf("transactional needs one cluster, but the source reads from "+
			"cluster %q and the sink writes to cluster %q", cluster, s.cluster)
	}
	p := &transactions{
		s: s, part: t.Part, key: key, assignment: t.Assignment, id: transactionalID(s.group, key),
		limit: commitmeta.DefaultLimit, wake: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.producer, err = s.producer(oldTransactions(), kgo.TransactionalID(p.id),
		kgo.TransactionTimeout(transactionTimeout), kgo.WithHooks(p),
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond))
	return p, err
}
