package pipeline

import (
	"slices"
	"sync"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// A stream.WithdrawingReader can withdraw batches, for example because a client no longer waits for
// them. A batch can be withdrawn in two places. A processed batch that waits for the sender is in
// withdrawals.queued, and is marked there. If the batch is in the sender and was not sent to a
// worker yet, the sender is told not to send it (flow.StopSending):
//
//	read ─▶ processed ─▶ queued ─▶ sender ─▶ attempt

// withdrawals has the batches of a stream.WithdrawingReader that are between the reader and the
// sender. For other readers it is empty.
type withdrawals struct {
	mu     sync.Mutex               // guards the fields below and job.withdrawn
	reader stream.WithdrawingReader // nil for other readers; set before the route runs
	queued []*job                   // at most jobsAtOnce
}

// open sets the reader. The reader may call withdrawUnsent before open is called.
func (w *withdrawals) open(r stream.Reader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reader, _ = r.(stream.WithdrawingReader)
}

func (w *withdrawals) add(j *job) {
	if w.reader == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queued = append(w.queued, j)
}

// take removes a job from withdrawals when the sender receives the job. It returns false if the job
// was withdrawn.
func (w *withdrawals) take(j *job) bool {
	if w.reader == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := slices.Index(w.queued, j); k >= 0 {
		w.queued = slices.Delete(w.queued, k, k+1)
	}
	return !j.withdrawn
}

// wants reports whether b is to be withdrawn: the reader no longer wants it to be delivered, and
// none of its records has become a dead letter.
func (w *withdrawals) wants(b *stream.Batch) bool {
	return w.reader != nil && canWithdraw(b) && w.reader.Unwanted(b)
}

// withdrawUnsent withdraws the batches that the reader no longer wants to be delivered. Processed
// batches that have not reached the sender are withdrawn at once. Those that wait in the sender for
// their first attempt are withdrawn soon after withdrawUnsent has returned. A batch that is still
// being processed is withdrawn when it reaches the sender.
func (r *sender) withdrawUnsent() {
	w := r.withdrawals
	w.mu.Lock()
	for _, j := range w.queued {
		if !j.withdrawn && j.isProcessed() && w.wants(j.batch) {
			j.withdrawn = true
			r.withdrew(j.batch)
		}
	}
	w.mu.Unlock()
	r.sender.Withdraw()
}

// isProcessed reports whether the processors have finished with the job without an error.
func (j *job) isProcessed() bool { return isClosed(j.done) && j.err == nil }

// withdrawal decides whether the sender must withdraw an item instead of delivering it. sent
// reports that a worker has got the item before. withdrawal is the function for
// flow.Options.Withdrawn.
func (r *sender) withdrawal(it stream.Item, sent bool) flow.Withdrawal {
	switch {
	case r.assigned != nil:
		return r.assigned.withdrawal(it)
	case !sent && r.withdrawals.wants(it.Value): // a worker may change a batch that was sent
		return flow.StopSending
	}
	return flow.NotWithdrawn
}

// withdrew removes a withdrawn batch from the counts of the route and tells the reader.
func (r *sender) withdrew(b *stream.Batch) {
	if r.assigned != nil {
		r.assigned.withdraw(b)
		return
	}
	r.mu.Lock()
	closing := withdrawAccounts(r.books, b, r.withdrawals.reader.ReadsAgain)
	r.mu.Unlock()
	r.withdrawals.reader.Withdrawn(b)
	r.mu.Lock()
	for _, s := range closing {
		if p := r.books.parts[s.Part.ID]; p != nil {
			r.books.settleRange(p, s.Range)
			r.books.markDirty(p)
		}
	}
	unsaved, parts := r.books.unsavedBytes, r.books.unsavedParts
	r.mu.Unlock()
	r.unsaved(unsaved, parts)
}
