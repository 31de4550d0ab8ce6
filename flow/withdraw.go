package flow

import "github.com/penstock-io/penstock/flow/control"

func withdrawalOf[T any](l *loop[T], it Item[T]) Withdrawal {
	if l.o.Withdrawn == nil {
		return NotWithdrawn
	}
	return l.o.Withdrawn(it)
}

// withdrawAll calls Options.Withdrawn for all unsettled items, and reports the withdrawn ones to
// the machine.
func withdrawAll[T any](l *loop[T]) {
	if l.hasAhead && withdrawalOf(l, l.ahead) != NotWithdrawn {
		it := l.ahead
		l.ahead, l.hasAhead = Item[T]{}, false
		l.offer(it, control.History{})
	}
	for _, h := range l.items.all() {
		if h.done {
			continue
		}
		switch withdrawalOf(l, h.Item) {
		case NotWithdrawn:
		case StopSending:
			l.put(control.Event{Kind: control.Withdraw, Seq: h.seq})
		case CancelAttempts:
			l.put(control.Event{Kind: control.Abort, Seq: h.seq})
		}
	}
	l.flush()
}

// settleUnoffered settles an item that was withdrawn before it was passed to the machine.
func settleUnoffered[T any](l *loop[T], h *heldItem[T]) {
	l.items.finish(h)
	if l.o.Settled != nil {
		l.o.Settled(h.Item, Settlement{Withdrawn: true})
	}
	l.release(h)
}

// cancelCause returns the cause with which a canceled attempt's context ends.
func cancelCause(w control.Reason) error {
	if w == control.Withdrawn {
		return ErrWithdrawn
	}
	return ErrSuperseded
}
