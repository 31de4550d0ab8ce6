//penstock:pure

package control

// reject notes that it will never be taken: it is cut or buried when nothing of it runs any more.
func (m *Machine) reject(it *item, out []Command) []Command {
	if it.state == isDone || it.state == inHands || it.fate == withdrawn {
		return out
	}
	m.leave(it)
	it.state = inFlight
	it.fate = refused
	it.interrupt()
	return out
}

// refuse asks for a refused item to be cut, and settles a withdrawn one,
// when no attempt of it runs.
func (m *Machine) refuse(it *item, out []Command) []Command {
	if it.fate == undecided || it.state != inFlight || len(it.running) > 0 {
		return out
	}
	if it.fate == withdrawn {
		return settleWithdrawn(m, it, out)
	}
	it.state = inHands
	m.hands[it.seq] = it
	if it.account.ended && !m.cfg.Poison.Refuse { // a piece may repeat what was stored
		return append(out, it.refusal(Bury))
	}
	return append(out, it.refusal(Bisect))
}

// cut takes the answer to Bisect.
func (m *Machine) cut(e *Event, out []Command) []Command {
	it := m.hands[e.Seq]
	if it == nil || it.pieces > 0 {
		return out
	}
	if e.Pieces < 2 {
		if it.fate == withdrawn {
			delete(m.hands, e.Seq)
			return settleWithdrawn(m, it, out)
		}
		if m.acquit(it) {
			return out
		}
		return append(out, it.refusal(Bury))
	}
	it.pieces, it.total = e.Pieces, e.Pieces
	return out
}

// buried takes the answer to Bury.
func (m *Machine) buried(e *Event, out []Command) []Command {
	it := m.hands[e.Seq]
	if it == nil || it.pieces > 0 {
		return out
	}
	delete(m.hands, e.Seq)
	out = append(out, Command{Kind: Settle, Seq: it.seq, Lane: -1, Number: it.number})
	m.settle(it)
	return out
}

// expectPieces makes the item of a attempt that was settled in part ready for the pieces that
// follow.
func (m *Machine) expectPieces(a *attempt, n uint32) {
	it := a.item
	if n == 0 || it.state == isDone || it.state == inHands {
		return
	}
	m.leave(it)
	it.state = inHands
	it.pieces, it.total = n, n
	it.byID, it.byLane, it.by = a.id, a.lane.num, a
	m.hands[it.seq] = it
}

// piece puts an item into the place of its parent, which goes when the last one has come.
func (m *Machine) piece(e *Event, out []Command) []Command {
	p := m.hands[e.Parent]
	if p == nil || p.pieces == 0 {
		return out
	}
	r := p.rank.piece(p.total-p.pieces, p.total, e.Seq)
	it := m.newItem(e.Seq, r, p, e)
	it.counted = p.counted
	it.inherit(p, e.Died)
	if it.counted {
		m.unsent -= it.bytes
		m.started += it.bytes
	}
	switch e.Outcome {
	case Delivered:
		it.state = inHands
		it.number = p.number
		it.byID, it.byLane = p.byID, p.byLane
		if p.by != nil {
			p.by.held = append(p.by.held, it)
		} else {
			out = m.settlePiece(it, out)
		}
	case Rejected:
		it.state = inHands
		it.number = p.number
		m.hands[it.seq] = it
		out = append(out, Command{Kind: Bury, Seq: it.seq, Lane: -1, Number: it.number})
	default:
		if p.byID != 0 { // the rest of a split keeps away from its lane, and waits longer if little was taken
			it.tried = append(it.tried, p.byLane)
			if it.cost*2 > p.cost {
				it.retry = p.retry
			}
		}
		it.state = inFlight
		if p.fate == withdrawn {
			it.fate = withdrawn
			out = m.refuse(it, out)
			break
		}
		m.judge(it)
		it.charged = p.total == 1 // nothing of it was settled
		m.again(it, nil)
	}
	if p.pieces--; p.pieces == 0 {
		delete(m.hands, p.seq)
		if p.counted {
			m.started -= p.bytes
		} else {
			m.unsent -= p.bytes
		}
		m.finish(p)
	}
	return out
}

func (m *Machine) settlePiece(it *item, out []Command) []Command {
	out = append(out, Command{Kind: Settle, Seq: it.seq, ID: it.byID, Lane: it.byLane, Number: it.number})
	m.settle(it)
	return out
}

// settlePieces settles the delivered pieces of an attempt that is being concluded; those still to
// come settle as they come.
func (m *Machine) settlePieces(a *attempt, out []Command) []Command {
	for _, it := range a.held {
		out = m.settlePiece(it, out)
	}
	clear(a.held)
	a.held = a.held[:0]
	if a.item.by == a {
		a.item.by = nil
	}
	return out
}
