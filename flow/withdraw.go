package flow

import (
	"slices"

	"github.com/penstock-io/penstock/flow/control"
)

func withdrawalOf[T any](l *loop[T], it Item[T], sent bool) Withdrawal {
	if l.o.Withdrawn == nil {
		return NotWithdrawn
	}
	return l.o.Withdrawn(it, sent)
}

// withdrawAhead settles the item for which there is no room yet, if it is withdrawn.
func withdrawAhead[T any](l *loop[T]) {
	if l.hasAhead && withdrawalOf(l, l.ahead, false) != NotWithdrawn {
		it := l.ahead
		l.ahead, l.hasAhead = Item[T]{}, false
		l.offer(it, control.History{})
	}
}

// withdrawAll calls Options.Withdrawn for all unsettled items, and reports the withdrawn ones to
// the state machine. It starts with the newest item: the end of an item may start an attempt of a
// later item, which must have been withdrawn before that.
func withdrawAll[T any](l *loop[T]) {
	withdrawAhead(l)
	for _, h := range slices.Backward(l.items.all()) {
		if h.done {
			continue
		}
		switch withdrawalOf(l, h.Item, h.sent) {
		case NotWithdrawn:
		case StopSending:
			l.step(control.Event{Kind: control.Withdraw, Seq: h.seq})
		case CancelAttempts:
			l.step(control.Event{Kind: control.Abort, Seq: h.seq})
		}
	}
}

// cancelCause returns the cause with which a canceled attempt's context ends.
func cancelCause(w control.Reason) error {
	if w == control.Withdrawn {
		return ErrWithdrawn
	}
	return ErrSuperseded
}
