package streamtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// Store is an in-memory database with transactions and a ledger for each partition. Like a
// [Broker], it outlives the engines of a test. NewStoreSink creates sinks for it. It is safe for
// concurrent use.
type Store struct {
	mu       sync.Mutex // guards the fields below
	rows     []string
	ledgers  map[string]*storeLedger // by partition
	mistakes []string
	fenced   int
	repeated int
	down     error
}

// storeLedger is the ledger of one partition.
type storeLedger struct {
	epoch     int
	watermark stream.Position
	spans     []stream.Range // ascending, disjoint, above the watermark
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{ledgers: make(map[string]*storeLedger)} }

// Rows returns the texts of all rows, in the order of their commits.
func (s *Store) Rows() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows)
}

// Mistakes returns the violations of the contract by engines.
func (s *Store) Mistakes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mistakes)
}

// Fenced returns the number of transactions that failed with a [stream.FencedError].
func (s *Store) Fenced() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenced
}

// Repeated returns the number of transactions for a batch that was stored already.
func (s *Store) Repeated() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repeated
}

// SetDown makes every transaction and every Take fail with err, until SetDown(nil).
func (s *Store) SetDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

// DeleteLedger deletes the ledger of a partition, as an operator can.
func (s *Store) DeleteLedger(partitionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ledgers, partitionID)
}

// Steal begins a new epoch of a partition. It has the same effect as a late Take by a process that
// no longer owns the partition.
func (s *Store) Steal(partitionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledgers[partitionID].epoch++
}

// Epoch returns the current epoch of a partition, or 0 if the partition has no ledger. Each Take
// and each Steal begins a new epoch.
func (s *Store) Epoch(partitionID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.ledgers[partitionID]; l != nil {
		return l.epoch
	}
	return 0
}

// StoreSink is a [stream.PartitionLedger] over a [Store].
type StoreSink struct {
	store *Store
	// Workers is the number of lanes. Zero means one.
	Workers int
	// Before, if not nil, is called by Deliver before the commit. An error prevents the commit.
	Before func(ctx context.Context, a stream.Attempt) error
	// After, if not nil, is called by Deliver after the commit. An error simulates a lost response.
	After func(ctx context.Context, a stream.Attempt) error
	// BeforeTake, if not nil, is called by Take.
	BeforeTake func(ctx context.Context) error
	// AfterTake, if not nil, is called by Take when its epochs have begun.
	AfterTake func(ctx context.Context)

	mu    sync.Mutex // guards taken
	taken map[uint32]*ownership
}

// ownership is the epoch of an assignment.
type ownership struct {
	epoch     int
	confirmed bool
}

// NewStoreSink returns a sink that writes to s.
func NewStoreSink(s *Store) *StoreSink {
	return &StoreSink{store: s, taken: make(map[uint32]*ownership)}
}

var _ stream.PartitionLedger = (*StoreSink)(nil)

// Open implements stream.Sink.
func (s *StoreSink) Open(_ context.Context, o stream.SinkOptions) error {
	lanes := make([]stream.Lane, max(1, s.Workers))
	for i := range lanes {
		lanes[i] = stream.Lane{Name: fmt.Sprintf("store #%d", i+1), Worker: s}
	}
	o.Lanes(lanes)
	return nil
}

// Close implements stream.Sink.
func (s *StoreSink) Close() error { return nil }

// Load implements stream.TransactionalSink. Engines do not call it for assigned partitions.
func (s *StoreSink) Load(context.Context) ([]stream.Mark, error) {
	return nil, errors.New("streamtest: the ledger of this store is by partition, see Take")
}

// LedgerName implements stream.TransactionalSink.
func (s *StoreSink) LedgerName() string { return "the store" }

// Prune implements stream.TransactionalSink. A broker's partitions are not deleted.
func (s *StoreSink) Prune(context.Context, []string) error { return nil }

// Take implements stream.PartitionLedger.
func (s *StoreSink) Take(ctx context.Context, parts []stream.Taking) ([]stream.Taken, error) {
	if s.BeforeTake != nil {
		if err := s.BeforeTake(ctx); err != nil {
			return nil, err
		}
	}
	out, err := s.take(parts)
	if err == nil && s.AfterTake != nil {
		s.AfterTake(ctx)
	}
	return out, err
}

func (s *StoreSink) take(parts []stream.Taking) ([]stream.Taken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.down != nil {
		return nil, s.store.down
	}
	out := make([]stream.Taken, len(parts))
	for i, p := range parts {
		l := s.store.ledgers[p.Part.ID]
		out[i].Found = l != nil
		if l == nil {
			if p.MustExist {
				continue
			}
			l = &storeLedger{watermark: p.Start.Watermark, spans: slices.Clone(p.Start.Above)}
			s.store.ledgers[p.Part.ID] = l
		}
		l.epoch++
		s.taken[p.Assignment] = &ownership{epoch: l.epoch}
		out[i].Mark = stream.Mark{Part: p.Part, Watermark: l.watermark,
			Above: slices.Clone(l.spans)}
	}
	return out, nil
}

// Confirm implements stream.PartitionLedger.
func (s *StoreSink) Confirm(assignments []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range assignments {
		if o := s.taken[n]; o != nil {
			o.confirmed = true
		}
	}
}

// Release implements stream.PartitionLedger.
func (s *StoreSink) Release(assignments []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range assignments {
		delete(s.taken, n)
	}
}

// Deliver implements stream.Worker: one transaction for one batch.
func (s *StoreSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	if s.Before != nil {
		if err := s.Before(ctx, a); err != nil {
			return stream.Report{}, err
		}
	}
	rows := []string{}
	for _, i := range a.Value.AppendKept(nil) {
		rows = append(rows, string(a.Value.Text(i)))
	}
	if err := s.commit(a.Value.Spans, rows); err != nil {
		return stream.Report{}, err
	}
	if s.After != nil {
		return stream.Report{}, s.After(ctx, a)
	}
	return stream.Report{}, nil
}

// Store implements stream.TransactionalSink.
func (s *StoreSink) Store(_ context.Context,
	spans []stream.Span) error {
	return s.commit(spans, nil)
}

// commit writes rows and spans together. It writes nothing if the ledger has all of the spans
// already. It returns an error if the ledger has only a part of them. It also returns an error if
// the assignment's epoch is not current or not confirmed, or if the assignment has been released.
func (s *StoreSink) commit(spans []stream.Span, rows []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.down != nil {
		return s.store.down
	}
	there, covering := 0, 0
	for _, sp := range spans {
		l, o := s.store.ledgers[sp.Part.ID], s.taken[sp.Assignment]
		if l == nil || o == nil || !o.confirmed || o.epoch != l.epoch {
			s.store.fenced++
			return &stream.FencedError{Assignment: sp.Assignment, Part: *sp.Part}
		}
		if sp.From == sp.To {
			continue
		}
		covering++
		switch l.holds(sp.Range) {
		case wholly:
			there++
		case partly:
			s.store.mistakes = append(s.store.mistakes,
				fmt.Sprintf("%s: a part of %v is there", sp.Part.ID, sp.Range))
			return errors.New("streamtest: a part of the batch is in the ledger")
		}
	}
	if there == covering {
		s.store.repeated++
		return nil
	}
	if there > 0 {
		s.store.mistakes = append(s.store.mistakes,
			fmt.Sprintf("%d of %d spans of a batch are there", there, covering))
		return errors.New("streamtest: a part of the batch is in the ledger")
	}
	for _, sp := range spans {
		if sp.From != sp.To {
			s.store.ledgers[sp.Part.ID].add(sp.Range)
		}
	}
	s.store.rows = append(s.store.rows, rows...)
	return nil
}

// Compact implements stream.TransactionalSink.
func (s *StoreSink) Compact(_ context.Context, marks []stream.Mark) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, m := range marks {
		l := s.store.ledgers[m.Part.ID]
		if l == nil || m.Watermark.Compare(l.watermark) <= 0 {
			continue
		}
		at := l.watermark
		for _, r := range l.spans {
			if r.From.Compare(at) <= 0 {
				at = r.To
			}
		}
		if m.Watermark.Compare(at) > 0 {
			s.store.mistakes = append(s.store.mistakes,
				fmt.Sprintf("%s: folded up to %v, and it holds %v", m.Part.ID, m.Watermark, at))
			continue
		}
		l.watermark = m.Watermark
		l.spans = slices.DeleteFunc(l.spans,
			func(r stream.Range) bool { return r.To.Compare(l.watermark) <= 0 })
	}
	return nil
}

type holding uint8

const (
	notAtAll holding = iota
	partly
	wholly
)

// holds reports how much of the range r is in the ledger.
func (l *storeLedger) holds(r stream.Range) holding {
	if r.To.Compare(l.watermark) <= 0 {
		return wholly
	}
	if r.From.Compare(l.watermark) < 0 {
		return partly
	}
	at, some := r.From, false
	for _, s := range l.spans {
		if s.To.Compare(r.From) <= 0 || s.From.Compare(r.To) >= 0 {
			continue
		}
		some = true
		if s.From.Compare(at) <= 0 {
			at = s.To
		}
	}
	switch {
	case at.Compare(r.To) >= 0:
		return wholly
	case some:
		return partly
	}
	return notAtAll
}

// add adds the range r to the ledger. r must not overlap the ranges in it.
func (l *storeLedger) add(r stream.Range) {
	l.spans = append(l.spans, r)
	slices.SortFunc(l.spans, func(a, b stream.Range) int {
		return cmp.Compare(a.From.Num, b.From.Num)
	})
}
