//penstock:pure

package control

// settlement handles the end of items: they are delivered, withdrawn, cut into pieces or
// dead-lettered.
type settlement struct {
	*env
	lanes    *lanes
	backlog  *backlog
	evidence *evidence
	pending  map[uint64]*item // by seq: items in the state isPending
	replay   replay
	counts   struct {
		settled    uint64
		withdrawn  uint64
		duplicates uint64 // answers that delivered an item a second time
		poisoned   uint64 // items refused as poison
	}
}

func newSettlement(ev *evidence) *settlement {
	return &settlement{
		env: ev.env, lanes: ev.lanes, backlog: ev.backlog, evidence: ev,
		pending: make(map[uint64]*item), replay: replay{limit: ev.cfg.Replay},
	}
}

// reject makes the item refused: once none of its attempts is running, it is cut into pieces or
// dead-lettered, unless one of them has delivered it. reject does nothing if the item has settled,
// is withdrawn, or is already being cut or dead-lettered.
func (s *settlement) reject(it *item, out []Command) []Command {
	if !it.isActive() || it.decision == withdrawn {
		return out
	}
	s.backlog.leave(it)
	it.state = inFlight
	it.decision = refused
	it.interrupt()
	return out
}

// carryOutDecision settles a withdrawn item. For a refused item, it appends the command to cut or
// dead-letter it. It does nothing while an attempt of the item runs.
func (s *settlement) carryOutDecision(it *item, out []Command) []Command {
	if it.decision == undecided || it.state != inFlight || len(it.running) > 0 {
		return out
	}
	if it.decision == withdrawn {
		return s.settleWithdrawn(it, out)
	}
	it.state = isPending
	s.pending[it.seq] = it
	// Dead-letter a given-up item whole, because some of its records may have been delivered.
	if it.account.givenUp && !s.cfg.Poison.Refuse {
		return append(out, it.refusal(DeadLetter))
	}
	return append(out, it.refusal(Bisect))
}

// cut handles a Cut event, the answer to Bisect.
func (s *settlement) cut(e *Event, out []Command) []Command {
	it := s.pending[e.Seq]
	if it == nil || it.cut.left > 0 {
		return out
	}
	if e.Pieces < 2 {
		if it.decision == withdrawn {
			delete(s.pending, e.Seq)
			return s.settleWithdrawn(it, out)
		}
		if s.retryPiece(it) {
			return out
		}
		return append(out, it.refusal(DeadLetter))
	}
	it.cut.begin(e.Pieces)
	return out
}

// deadLettered handles a DeadLettered event, the answer to DeadLetter.
func (s *settlement) deadLettered(e *Event, out []Command) []Command {
	it := s.pending[e.Seq]
	if it == nil || it.cut.left > 0 {
		return out
	}
	delete(s.pending, e.Seq)
	return s.settle(it, 0, -1, out)
}

// expectPieces prepares the item of attempt a for n Piece events, which must follow. The attempt
// was answered with a Split, and the pieces replace the item.
func (s *settlement) expectPieces(a *attempt, n uint32) {
	it := a.item
	if n == 0 || !it.isActive() {
		return
	}
	s.backlog.leave(it)
	it.state = isPending
	it.cut.begin(n)
	it.cut.byID, it.cut.byLane, it.by = a.id, a.lane.num, a
	s.pending[it.seq] = it
}

// piece handles a Piece event: it adds an item that replaces a part of its parent, and has the
// parent's place in the order. The last piece removes the parent.
func (s *settlement) piece(e *Event, out []Command) []Command {
	p := s.pending[e.Parent]
	if p == nil || p.cut.left == 0 {
		return out
	}
	r := p.rank.piece(p.cut.total-p.cut.left, p.cut.total, e.Seq)
	it := s.backlog.newItem(e.Seq, r, p, e)
	it.counted = p.counted
	it.inherit(p, e.Died)
	s.replay.add(it)
	switch e.Outcome {
	case Delivered:
		it.state = isPending
		it.number = p.number
		it.cut.byID, it.cut.byLane = p.cut.byID, p.cut.byLane
		if p.by != nil {
			p.by.deliveredPieces = append(p.by.deliveredPieces, it)
		} else {
			out = s.settle(it, it.cut.byID, it.cut.byLane, out)
		}
	case Rejected:
		it.state = isPending
		it.number = p.number
		s.pending[it.seq] = it
		out = append(out, Command{Kind: DeadLetter, Seq: it.seq, Lane: -1, Number: it.number})
	default:
		// The piece was not delivered. If the item was replaced because of a Split, the piece
		// avoids the lane that answered with the Split. If it is more than half of the item, it
		// also keeps the item's retry state, and so waits longer.
		if p.cut.byID != 0 {
			it.tried = append(it.tried, p.cut.byLane)
			if it.cost*2 > p.cost {
				it.retry = p.retry
			}
		}
		it.state = inFlight
		if p.decision == withdrawn {
			it.decision = withdrawn
			out = s.carryOutDecision(it, out)
			break
		}
		s.evidence.assess(it)
		it.needsToken = p.cut.total == 1 // nothing of p was settled
		s.backlog.requeue(it, nil)
	}
	if p.cut.left--; p.cut.left == 0 {
		delete(s.pending, p.seq)
		s.replay.remove(p)
		s.backlog.finish(p)
	}
	return out
}

// settlePieces is called when the outcome of attempt a, a Split, takes effect. It settles the
// delivered pieces of the Split that the machine has already got by Piece events. Later pieces
// settle when their events arrive.
func (s *settlement) settlePieces(a *attempt, out []Command) []Command {
	for _, it := range a.deliveredPieces {
		out = s.settle(it, it.cut.byID, it.cut.byLane, out)
	}
	clear(a.deliveredPieces)
	a.deliveredPieces = a.deliveredPieces[:0]
	if a.item.by == a {
		a.item.by = nil
	}
	return out
}

// deliver settles the item as delivered by attempt a, unless it is settled already.
func (s *settlement) deliver(it *item, a *attempt, out []Command) []Command {
	// An item that is being cut or dead-lettered cannot be stopped.
	if !it.isActive() {
		s.counts.duplicates++
		return out
	}
	s.backlog.budget.earn(a, s.now)
	s.evidence.blame.recordDelivery(it, a)
	for _, f := range it.failures {
		if l := s.lanes.get(f.lane); l != nil {
			l.failures.goodFailed++
		}
	}
	return s.cancelOthers(a, s.settle(it, a.id, a.lane.num, out))
}

// cancelOthers cancels the other running attempts of an item that attempt a has just settled.
// Attempts at Ordered lanes continue. Overdue attempts continue, too, since their late answers are
// samples of their workers' times. If a hedge has settled the item, no attempt is canceled.
func (s *settlement) cancelOthers(a *attempt, out []Command) []Command {
	for _, o := range a.item.running {
		if o != a && !a.isHedge && !o.overdue && !o.ordered && !o.canceled {
			o.canceled = true
			out = append(out, Command{Kind: Cancel, Seq: a.item.seq, ID: o.id, Lane: o.lane.num})
		}
	}
	return out
}

// settle counts the item as settled and removes it from the sequence. The parameters id and lane
// name the attempt that delivered it; they are 0 and -1 if none did.
func (s *settlement) settle(it *item, id uint64, lane int32, out []Command) []Command {
	s.counts.settled++
	s.replay.settle(it)
	out = append(out, Command{})
	c := &out[len(out)-1]
	c.Kind, c.Seq, c.ID, c.Lane, c.Number = Settle, it.seq, id, lane, it.number
	s.backlog.finish(it)
	return out
}
