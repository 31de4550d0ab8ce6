//penstock:pure

package control

// withdraw handles the events Withdraw and Abort.
func (s *settlement) withdraw(e *Event, out []Command) []Command {
	it := s.backlog.items.oldest
	for it != nil && it.seq != e.Seq {
		it = it.next
	}
	if it == nil {
		return out
	}
	if it.state != inHands {
		s.backlog.leave(it)
		it.state = inFlight
		it.interrupt()
	}
	it.fate = withdrawn
	for _, a := range it.running {
		if e.Kind == Abort && !a.canceled && !a.answered {
			a.canceled = true
			out = append(out, Command{Kind: Cancel, Why: Withdrawn, Seq: it.seq, ID: a.id, Lane: a.lane.num})
		}
	}
	return s.refuse(it, out)
}

// settleWithdrawn settles the item as withdrawn. Its bytes need no Saved.
func (s *settlement) settleWithdrawn(it *item, out []Command) []Command {
	s.counts.withdrawn++
	s.replay.remove(it)
	s.backlog.finish(it)
	return append(out, Command{Kind: Settle, Why: Withdrawn, Seq: it.seq, Lane: -1, Number: it.number})
}
