package intake

import (
	"context"
	"slices"
	"sort"

	"github.com/penstock-io/penstock/stream"
)

// The states of a submission, and the effect of [Submission.Withdraw]:
//
//	queued ──read──▶ read ──────▶ sent ──▶ settled
//	   │              │ Withdraw
//	   │ Withdraw     └──▶ unwanted ──its batch has not been sent──▶ withdrawn
//	   └──▶ withdrawn          └──its batch has been sent──▶ sent ──▶ settled
//
// The sender (package flow) can withdraw only whole batches. A submission that was read is
// therefore withdrawn only if all submissions in its batch are unwanted, and if it is in no other
// batch. So that this is possible, the reader puts a submission that a sender waits for into a
// single batch if it fits.
//
// Data that a route has read is not withdrawn if the pipeline has several routes, because another
// route may have delivered it. After a restart, a route does not withdraw data that it read before
// the restart, because it may have delivered the data.

// Withdraw takes the data of the submission back unless a worker may have received it. After a
// withdrawal, [Submission.Wait] returns [ErrWithdrawn]. If the pipeline has one route, and this
// route has read the data, Withdraw waits until the route has withdrawn or settled it, or until ctx
// is done. The route may withdraw the data even after ctx is done. If the pipeline has several
// routes, Withdraw only takes back data that no route has read.
func (s *Submission) Withdraw(ctx context.Context) {
	if withdraw := s.disown(); withdraw != nil {
		withdraw()
		_ = s.in.await(ctx, s.done) // Wait returns the outcome
	}
}

// disown withdraws the data if no route has read it. Otherwise it marks the data as unwanted, and
// returns a function that makes the route withdraw unwanted data. The function is nil in these
// cases: the data is already settled or withdrawn, the pipeline does not have exactly one route, or
// this route is closed or cannot withdraw data.
func (s *Submission) disown() (withdraw func()) {
	i := s.in
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-s.done:
		return nil
	default:
	}
	if at := slices.Index(i.queue, s); at >= 0 {
		i.queue = slices.Delete(i.queue, at, at+1)
		s.err = ErrWithdrawn
		i.finish(s)
		i.notify()
		return nil
	}
	if !s.unwanted {
		s.unwanted = true
		i.unwanted++
	}
	if !i.hasOneRoute() {
		return nil
	}
	for _, p := range i.routes {
		withdraw = p.withdraw
	}
	return withdraw
}

// hasOneRoute reports whether the pipeline has exactly one route and this route has opened. The
// caller holds i.mu.
func (i *Intake) hasOneRoute() bool { return len(i.routes) == 1 && len(i.host.Routes()) == 1 }

// exceeds reports whether s must begin a new batch: a sender waits for it, and its records do not
// fit into the remaining room of b, but fit into an empty batch.
func (s *Submission) exceeds(b *stream.Batch) bool {
	size, count, most := s.records.Size(), s.records.count, b.Limits()
	return s.awaited && size <= most.Bytes && count <= most.Records &&
		(len(b.Data)+size > most.Bytes || b.Origins+count > most.Records)
}

// Unwanted implements stream.WithdrawingReader: it reports whether b consists of whole, unwanted
// submissions that no other reader may have sent.
func (r *reader) Unwanted(b *stream.Batch) bool {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unwanted == 0 || r.progress.reader != r || !i.hasOneRoute() {
		return false
	}
	found := i.wholeIn(b)
	return len(found) > 0 &&
		!slices.ContainsFunc(found, func(s *Submission) bool { return !s.unwanted || s.mayBeSent })
}

// Withdrawn implements stream.WithdrawingReader: it completes the withdrawal of the submissions in
// b, which was not sent.
func (r *reader) Withdrawn(b *stream.Batch) {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.wholeIn(b) {
		s.err = ErrWithdrawn
		if !i.hasOneRoute() { // another route has opened meanwhile, and may have read s
			s.err = ErrUnsettled
		}
		if s.part != &i.part { // so that its progress expires like that of other requests
			r.progress.requests.note(stream.Mark{Part: *s.part})
		}
		at := sort.Search(len(i.log), func(n int) bool { return i.log[n].from >= s.from })
		i.log = slices.Delete(i.log, at, at+1)
		i.finish(s)
	}
	i.notify()
}

// ReadsAgain implements stream.WithdrawingReader. It returns true only for identified requests,
// which can be submitted again with the same positions.
func (r *reader) ReadsAgain(partitionID string) bool { return stream.IsRequest(partitionID) }

// wholeIn returns the submissions in b if b consists of whole, unsettled submissions. Otherwise it
// returns none. The caller holds i.mu.
func (i *Intake) wholeIn(b *stream.Batch) (found []*Submission) {
	for k := range b.Spans {
		span := &b.Spans[k]
		for at := span.From.Num; at < span.To.Num; {
			s := i.at(span.Part, at)
			if s == nil || s.position(s.from) != at || s.position(s.to()) > span.To.Num {
				return nil
			}
			found = append(found, s)
			at = s.position(s.to())
		}
	}
	return found
}

// at returns the first unsettled submission of a partition that ends after the given position, or
// nil if there is none.
func (i *Intake) at(part *stream.Partition, position int64) *Submission {
	if part.ID != i.part.ID {
		return i.working[part.ID]
	}
	n := sort.Search(len(i.log), func(n int) bool { return i.log[n].mainTo > position })
	if n == len(i.log) || i.log[n].part != &i.part {
		return nil
	}
	return i.log[n]
}
