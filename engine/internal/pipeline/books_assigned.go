//penstock:pure

package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// This file has the accounts (the progress in memory) of partitions that a broker assigns to this
// process and revokes. Each assignment has its own number and its own account. If a partition is
// revoked and assigned again, late batches of the first assignment do not change the account of the
// second one.

// errNotAssigned means that the assignment of a batch is ending or has ended. The next owner of the
// partition reads the batch's records.
var errNotAssigned = errors.New("the partition of the batch is no longer assigned")

// assignment is the part of a partition's account that only assigned partitions have.
type assignment struct {
	number   uint32 // 0 if no broker assigns the partition
	start    stream.Mark
	revoking bool
	sent     int64         // number of positions that are in the sender and not settled
	unstored []storedRange // settled, but perhaps not stored by the broker
}

// storedRange is a settled range that the broker may not have stored yet. Until it is stored, a
// kill would repeat its bytes.
type storedRange struct {
	stream.Range
	bytes int64
}

// endedAssignment is an assignment that has ended and still has batches in the sender.
type endedAssignment struct {
	id   string // of the partition
	sent int64
	lost bool
}

// assigned is the part of the books that only routes with assigned partitions have.
type assigned struct {
	stores bool  // the source stores positions; settled bytes count as saved only after that
	freed  int64 // settled bytes of ended assignments: no longer unsaved after the next save
	ended  map[uint32]*endedAssignment
}

// assign begins the account (the progress in memory) of a partition that was assigned to this
// process. m is the progress at that time. unsaid is set if m comes from the sink's ledger, so that
// the source may not know it. The next save then reports m to the source.
func (k *books) assign(m stream.Mark, number uint32, unsaid bool) error {
	l, err := ledger.New(m.Watermark, m.Above)
	if err != nil {
		return fmt.Errorf("partition %q: its stored ranges: %w", m.Part.Name, err)
	}
	if k.parts[m.Part.ID] != nil {
		return fmt.Errorf("partition %q is assigned already: the source must revoke or lose it first", m.Part.Name)
	}
	p := &partition{part: m.Part, ledger: l, keys: []string{m.Part.ID},
		assignment: assignment{number: number, start: m}}
	k.parts[m.Part.ID] = p
	if unsaid {
		k.markDirty(p)
	}
	return nil
}

// startOf returns the progress at the start of a partition's current assignment, and false if the
// partition is not assigned to this process.
func (k *books) startOf(id string) (stream.Mark, bool) {
	p := k.parts[id]
	if p == nil {
		return stream.Mark{}, false
	}
	return p.assignment.start, true
}

// accept checks a batch that was just read. All its spans must have the number of the same
// assignment, and their positions must be numbers only, without a key (stream.Position.Key). accept
// returns errNotAssigned if the assignment is ending or has ended.
func (k *books) accept(b *stream.Batch) error {
	number := b.Spans[0].Assignment
	for i := range b.Spans {
		s := &b.Spans[i]
		switch {
		case s.Assignment == 0:
			return fmt.Errorf("partition %q: the source handed out a span without the number of "+
				"its assignment", s.Part.Name)
		case s.Assignment != number:
			return fmt.Errorf("partition %q: the source handed out a batch of several assignments", s.Part.Name)
		case s.To.Key != "":
			return fmt.Errorf("partition %q: the position of a partition that is assigned may "+
				"not have a key", s.Part.Name)
		}
	}
	if p := k.current(&b.Spans[0]); p == nil || p.assignment.revoking {
		return errNotAssigned
	}
	return nil
}

// current returns the account (the progress in memory) of the partition of span s. It returns nil
// if the assignment in which s was read has ended.
func (k *books) current(s *stream.Span) *partition {
	return k.assignedAs(s.Part.ID, s.Assignment)
}

// assignedAs returns a partition if its current assignment has the given number, otherwise nil.
func (k *books) assignedAs(id string, number uint32) *partition {
	if p := k.parts[id]; p != nil && p.assignment.number == number {
		return p
	}
	return nil
}

// addSent adds the length of b's spans to the count of positions that are in the sender. There is
// one count for each assignment, and a revocation waits until it is 0. With sign -1, addSent
// subtracts the length.
func (k *books) addSent(b *stream.Batch, sign int64) {
	for i := range b.Spans {
		s := &b.Spans[i]
		if s.Assignment == 0 {
			return
		}
		n := sign * (s.To.Num - s.From.Num)
		if p := k.current(s); p != nil {
			p.assignment.sent += n
			continue
		}
		e := k.assigned.ended[s.Assignment]
		if e == nil {
			continue // the assignment has ended, and the sender withdraws the batch at once
		}
		if e.sent += n; e.sent <= 0 {
			delete(k.assigned.ended, s.Assignment)
		}
	}
}

// withdrawal decides whether the sender must withdraw b because the assignment of b is ending or
// has ended. If the partition was lost, running attempts are canceled. If it is being revoked or
// was revoked, they may finish.
func (k *books) withdrawal(b *stream.Batch) flow.Withdrawal {
	s := &b.Spans[0]
	if s.Assignment == 0 {
		return flow.NotWithdrawn
	}
	if p := k.current(s); p != nil && !p.assignment.revoking {
		return flow.NotWithdrawn
	}
	if e := k.assigned.ended[s.Assignment]; e != nil && e.lost {
		return flow.CancelAttempts
	}
	return flow.StopSending
}

// withdraw subtracts a withdrawn batch from the counts of read and sent data. The next owner of
// the partition reads the batch's records.
func (k *books) withdraw(b *stream.Batch) {
	k.addSent(b, -1)
	k.counts.readRecords -= int64(b.Origins)
	k.counts.readBytes -= b.RawBytes() - int64(b.Added)
}

// settleAssigned updates two things for a settled batch: the count of positions that are in the
// sender, and the settled bytes that still count as unsaved. It changes neither for a batch that
// was not sent. It never settles the batch's ranges. late reports whether the batch's assignment
// has ended.
func (k *books) settleAssigned(b *stream.Batch, end batchOutcome) (late bool) {
	late = k.current(&b.Spans[0]) == nil
	if end.unsent {
		return late
	}
	k.addSent(b, -1)
	last := &b.Spans[len(b.Spans)-1] // positions are stored in order, so the last one is enough
	if p := k.current(last); p == nil {
		k.assigned.freed += b.RawBytes()
	} else if k.assigned.stores {
		p.assignment.unstored = append(p.assignment.unstored, storedRange{last.Range, b.RawBytes()})
	}
	return late
}

// stored is called when the source has stored marks (the progress of partitions) at the broker. It
// returns the number of bytes that a kill no longer repeats, now that the marks are stored.
func (k *books) stored(marks []stream.Mark) (bytes int64) {
	for i := range marks {
		m := &marks[i]
		p := k.assignedAs(m.Part.ID, m.Assignment)
		if p == nil {
			continue
		}
		p.assignment.unstored = slices.DeleteFunc(p.assignment.unstored, func(r storedRange) bool {
			if !covers(m, r.To) {
				return false
			}
			bytes += r.bytes
			return true
		})
	}
	return bytes
}

// covers reports whether the progress m contains the position p as settled.
func covers(m *stream.Mark, p stream.Position) bool {
	if p.Compare(m.Watermark) <= 0 {
		return true
	}
	i, found := slices.BinarySearchFunc(m.Above, p, func(r stream.Range, p stream.Position) int {
		return r.To.Compare(p)
	})
	return found || i < len(m.Above) && m.Above[i].From.Compare(p) < 0
}

// revoke notes that an assignment is being revoked: batches that are read from now on are refused
// (see accept), and batches in the sender may still settle. It returns the number of the
// assignment, or 0 if the partition has no assignment or is already being revoked.
func (k *books) revoke(id string) uint32 {
	p := k.parts[id]
	if p == nil || p.assignment.revoking {
		return 0
	}
	p.assignment.revoking = true
	return p.assignment.number
}

// end closes the account (the progress in memory) of an assignment. lost means that the broker may
// already have given the partition to another process, so running attempts are canceled.
//
// out is the number of positions of the assignment that are still in the sender, where a worker may
// deliver them. ok is false if the assignment had already ended.
func (k *books) end(id string, number uint32, lost bool) (out int64, ok bool) {
	p := k.assignedAs(id, number)
	if p == nil {
		return 0, false
	}
	for _, r := range p.assignment.unstored {
		k.assigned.freed += r.bytes
	}
	if p.assignment.sent > 0 {
		k.assigned.ended[number] = &endedAssignment{id: id, sent: p.assignment.sent, lost: lost}
	}
	delete(k.parts, id)
	delete(k.pending, p)
	k.dirty = slices.DeleteFunc(k.dirty, func(q *partition) bool { return q == p })
	return p.assignment.sent, true
}

// lose ends the current assignment of a partition, because the broker may have given the partition
// to another process. It returns the number of the assignment, or 0 if there is none. The sender
// must then cancel the batches of this assignment, and those of earlier assignments of the
// partition. cancels reports whether there may be such batches.
func (k *books) lose(id string) (number uint32, cancels bool) {
	for _, e := range k.assigned.ended {
		if e.id == id {
			e.lost, cancels = true, true
		}
	}
	p := k.parts[id]
	if p == nil {
		return 0, cancels
	}
	number = p.assignment.number
	k.end(id, number, true)
	return number, true
}
