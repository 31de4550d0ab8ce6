package streamtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Broker is an in-memory broker with one topic and one consumer group. It outlives the engines of a
// test, so that engines can be killed, cut off and restarted. NewBrokerSource creates sources for
// it. It has no clock: a session ends only if its member leaves or joins again, or if the test ends
// it. A Broker is safe for concurrent use.
//
// A rebalance is cooperative: the broker revokes a partition, waits until the owner has
// acknowledged this, and only then assigns the partition to the new owner. Like a Kafka broker, it
// accepts commits of any living member for any partition. Two kinds of commits are mistakes of the
// source, which Mistakes returns: a commit by a member that does not own the partition, and one
// that lowers an offset.
type Broker struct {
	mu       sync.Mutex // guards the fields below
	parts    []*brokerPartition
	sessions map[string]*session // the group's members, by name
	cut      map[string]bool     // members that are cut off
	frozen   map[string]bool     // members that get no notifications
	changed  chan struct{}       // closed and replaced at each change
	mistakes []string
	moves    int
}

type brokerPartition struct {
	id       string
	records  []brokerRecord // by offset
	offset   int64          // committed
	metadata string
	stored   bool
	owner    *session // nil if it has no owner
	revoking bool     // the owner was asked to release it
}

type brokerRecord struct {
	value string
	gap   bool // an offset without a record: compacted, aborted or a control record
}

// session is one membership in the group. A member that joins again gets another session.
type session struct {
	b      *Broker
	name   string
	gone   chan struct{} // closed at the end of the session, unless the member is cut or frozen
	events []groupEvent
}

// groupEvent asks a member to take or to release partitions.
type groupEvent struct {
	assigned, revoked []string
}

var (
	errUnknownMember = errors.New("streamtest: the broker does not know this member: " +
		"its session has ended")
	errCutOff = errors.New("streamtest: the connection to the broker is cut")
)

// NewBroker returns a broker with the given number of empty partitions, named p0, p1 and so on.
func NewBroker(partitions int) *Broker {
	b := &Broker{
		sessions: make(map[string]*session), changed: make(chan struct{}),
		cut: make(map[string]bool), frozen: make(map[string]bool),
	}
	for i := range partitions {
		b.parts = append(b.parts, &brokerPartition{id: fmt.Sprintf("p%d", i)})
	}
	return b
}

// Produce appends a record to a partition.
func (b *Broker) Produce(partition int, value string) {
	b.produce(partition, brokerRecord{value: value})
}

// ProduceGap appends an offset without a record.
func (b *Broker) ProduceGap(partition int) { b.produce(partition, brokerRecord{gap: true}) }

func (b *Broker) produce(partition int, r brokerRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[partition].records = append(b.parts[partition].records, r)
	b.wake()
}

// wake wakes all waiting calls. The caller holds mu.
func (b *Broker) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Committed returns the committed offset of a partition and its metadata.
func (b *Broker) Committed(partition int) (offset int64, metadata string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parts[partition].offset, b.parts[partition].metadata
}

// SetCommitted sets the committed offset of a partition, without metadata, as an administrator's
// tool does.
func (b *Broker) SetCommitted(partition int, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[partition]
	p.offset, p.metadata, p.stored = offset, "", true
}

// Lag returns the number of offsets of all partitions that have not been committed.
func (b *Broker) Lag() (lag int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parts {
		lag += int64(len(p.records)) - p.offset
	}
	return lag
}

// Owners returns the names of the members that own the partitions, "" for a partition without
// owner.
func (b *Broker) Owners() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]string, len(b.parts))
	for i, p := range b.parts {
		if p.owner != nil {
			out[i] = p.owner.name
		}
	}
	return out
}

// Moves returns the number of assignments of partitions to members so far.
func (b *Broker) Moves() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moves
}

// Mistakes returns the violations of the protocol by sources.
func (b *Broker) Mistakes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mistakes)
}

// Expire ends the session of a member, as a missed heartbeat does, and gives its partitions to the
// other members. The member is told, and joins again.
func (b *Broker) Expire(member string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[member]; s != nil {
		b.drop(s)
	}
}

// Cut ends the session of a member, and gives its partitions to the other members. From then on,
// the member gets no notifications, and its commits and heartbeats fail. This simulates a killed
// process or a broken network. A process that replaces the member must join under another name.
func (b *Broker) Cut(member string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut[member] = true
	if s := b.sessions[member]; s != nil {
		b.drop(s)
	}
}

// Freeze ends the session of a member without telling the member, and withholds notifications from
// it until Thaw. The broker still answers calls of the member.
func (b *Broker) Freeze(member string) {
	b.mu.Lock()
	b.frozen[member] = true
	b.mu.Unlock()
	b.Expire(member)
}

// Thaw ends a Freeze.
func (b *Broker) Thaw(member string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.frozen, member)
	b.wake()
}

// drop removes a member from the group. The caller holds mu.
func (b *Broker) drop(s *session) {
	if b.sessions[s.name] == s {
		delete(b.sessions, s.name)
		if !b.cut[s.name] && !b.frozen[s.name] {
			close(s.gone)
		}
	}
	for _, p := range b.parts {
		if p.owner == s {
			p.owner, p.revoking = nil, false
		}
	}
	b.rebalance()
}

// rebalance assigns each partition to the member that must own it now. If another member still owns
// the partition, it first asks that member to release it. The caller holds mu.
func (b *Broker) rebalance() {
	names := slices.Sorted(maps.Keys(b.sessions))
	for i, p := range b.parts {
		var target *session
		if len(names) > 0 {
			target = b.sessions[names[i%len(names)]]
		}
		switch {
		case p.owner == target || p.revoking:
		case p.owner != nil:
			p.revoking = true
			p.owner.events = append(p.owner.events, groupEvent{revoked: []string{p.id}})
		default:
			p.owner = target
			b.moves++
			target.events = append(target.events, groupEvent{assigned: []string{p.id}})
		}
	}
	b.wake()
}

// join creates a session for a member, and ends an earlier one of the same name.
func (b *Broker) join(name string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.sessions[name]; old != nil {
		b.drop(old)
	}
	s := &session{b: b, name: name, gone: make(chan struct{})}
	if !b.cut[name] {
		b.sessions[name] = s
		b.rebalance()
	}
	return s
}

// check returns the error with which calls of the session fail if the member is cut off, or if the
// broker has ended or replaced the session. It returns nil otherwise. The caller holds mu.
func (s *session) check() error {
	switch {
	case s.b.cut[s.name]:
		return errCutOff
	case s.b.sessions[s.name] != s:
		return errUnknownMember
	}
	return nil
}

// next waits for an event: a request of the broker to take or to release partitions. If the member
// is cut off, next waits until ctx is done.
func (s *session) next(ctx context.Context) (groupEvent, error) {
	for {
		s.b.mu.Lock()
		err, changed, frozen := s.check(), s.b.changed, s.b.frozen[s.name]
		if err == nil && !frozen && len(s.events) > 0 {
			e := s.events[0]
			s.events = s.events[1:]
			s.b.mu.Unlock()
			return e, nil
		}
		s.b.mu.Unlock()
		if errors.Is(err, errUnknownMember) && !frozen {
			return groupEvent{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return groupEvent{}, context.Cause(ctx)
		}
	}
}

// release releases partitions after they were revoked.
func (s *session) release(ids []string) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.check() != nil {
		return
	}
	for _, p := range s.b.parts {
		if p.owner == s && slices.Contains(ids, p.id) {
			p.owner, p.revoking = nil, false
		}
	}
	s.b.rebalance()
}

// leave removes the member from the group, and so releases all of its partitions.
func (s *session) leave() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.check() == nil {
		s.b.drop(s)
	}
}

// owns sends a heartbeat and reports whether the member still owns a partition.
func (s *session) owns(id string) (bool, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.check(); errors.Is(err, errUnknownMember) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return s.b.partition(id).owner == s, nil
}

func (b *Broker) partition(id string) *brokerPartition {
	for _, p := range b.parts {
		if p.id == id {
			return p
		}
	}
	panic("streamtest: BUG: no partition " + id)
}

// offsetCommit is the stored position of one partition.
type offsetCommit struct {
	id       string
	offset   int64
	metadata string
}

// commit stores positions.
func (s *session) commit(list []offsetCommit) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.check(); err != nil {
		return err
	}
	for _, c := range list {
		p := s.b.partition(c.id)
		if p.owner != s {
			s.b.mistakes = append(s.b.mistakes,
				fmt.Sprintf("%s commits %s, which it does not own", s.name, c.id))
		}
		if p.stored && c.offset < p.offset {
			s.b.mistakes = append(s.b.mistakes,
				fmt.Sprintf("%s lowers %s from %d to %d", s.name, c.id, p.offset, c.offset))
		}
		p.offset, p.metadata, p.stored = c.offset, c.metadata, true
	}
	s.b.wake()
	return nil
}

// position returns the stored position of a partition.
func (s *session) position(id string) (c offsetCommit, stored bool, err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.check(); err != nil {
		return c, false, err
	}
	p := s.b.partition(id)
	return offsetCommit{id: id, offset: p.offset, metadata: p.metadata}, p.stored, nil
}

// fetch returns the records from an offset on.
func (b *Broker) fetch(id string, from int64) []brokerRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.partition(id)
	return p.records[min(from, int64(len(p.records))):]
}

// change returns a channel that is closed at the next change.
func (b *Broker) change() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}
