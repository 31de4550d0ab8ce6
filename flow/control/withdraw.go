//penstock:pure

package control

// withdraw handles the events Withdraw and Abort: no further attempt of the item starts. Abort also
// cancels its running attempts.
func (s *settlement) withdraw(e *Event, out []Command) []Command {
	it := s.backlog.items.oldest
	for it != nil && it.seq != e.Seq {
		it = it.next
	}
	if it == nil {
		return out
	}
	if it.state != isPending {
		s.backlog.leave(it)
		it.state = inFlight
		it.interrupt()
	}
	it.decision = withdrawn
	for _, a := range it.running {
		if e.Kind == Abort && !a.canceled && !a.answered {
			a.canceled = true
			out = append(out, Command{Kind: Cancel, Reason: Withdrawn, Seq: it.seq, ID: a.id,
				Lane: a.lane.num})
		}
	}
	return s.carryOutDecision(it, out)
}

// settleWithdrawn settles the item as withdrawn. Its bytes need no Saved.
func (s *settlement) settleWithdrawn(it *item, out []Command) []Command {
	s.counts.withdrawn++
	s.replay.remove(it)
	s.backlog.finish(it)
	return append(out, Command{Kind: Settle, Reason: Withdrawn, Seq: it.seq, Lane: -1,
		Number: it.number})
}
