package flow

import (
	"slices"

	"github.com/penstock-io/penstock/flow/control"
)

func withdrawalOf[T any](l *loop[T], it Item[T]) Withdrawal {
	if l.o.Withdrawn == nil {
		return NotWithdrawn
	}
	return l.o.Withdrawn(it)
}

// appliesTo reports whether the withdrawal has an effect on an item. The parameter sent reports
// whether an attempt of the item was started.
func (w Withdrawal) appliesTo(sent bool) bool {
	return w > WithdrawUnsent || w == WithdrawUnsent && !sent
}

// withdrawAhead settles the item for which there is no room yet, if it is withdrawn.
func withdrawAhead[T any](l *loop[T]) {
	if l.hasAhead && withdrawalOf(l, l.ahead).appliesTo(false) {
		it := l.ahead
		l.ahead, l.hasAhead = Item[T]{}, false
		l.offer(it, control.History{})
	}
}

// withdrawAll calls Options.Withdrawn for all unsettled items, and reports the withdrawn ones to
// the machine. It starts with the newest item, because the end of an item may start an attempt of
// a later one.
func withdrawAll[T any](l *loop[T]) {
	withdrawAhead(l)
	for _, h := range slices.Backward(l.items.all()) {
		if h.done {
			continue
		}
		switch w := withdrawalOf(l, h.Item); {
		case !w.appliesTo(h.sent):
		case w == CancelAttempts:
			l.step(control.Event{Kind: control.Abort, Seq: h.seq})
		default:
			l.step(control.Event{Kind: control.Withdraw, Seq: h.seq})
		}
	}
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
