package pipeline

import (
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// withdrawal is the sender's flow.Options.Withdrawn.
func (r *sender) withdrawal(it stream.Item) flow.Withdrawal {
	switch {
	case r.assigned != nil:
		return r.assigned.withdrawal(it)
	case r.withdrawing != nil && canWithdraw(it.Value) && r.withdrawing.Unwanted(it.Value):
		return flow.WithdrawUnsent
	}
	return flow.NotWithdrawn
}

// withdrew records that the sender has withdrawn b.
func (r *sender) withdrew(b *stream.Batch) {
	if r.assigned != nil {
		r.assigned.withdraw(b)
		return
	}
	r.mu.Lock()
	r.books.withdrawAccounts(b, r.withdrawing.ReadsAgain)
	r.mu.Unlock()
	r.withdrawing.Withdrawn(b)
	r.mu.Lock()
	r.books.withdrawRanges(b)
	unsaved, parts := r.books.unsavedBytes, r.books.unsavedParts
	r.mu.Unlock()
	r.unsaved(unsaved, parts)
}
