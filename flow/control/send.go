//penstock:pure

package control

import "time"

// dispatch starts what can be started: probes of lanes that are to be tried again, then items sent
// before, oldest first, then new ones, then suspects.
func (m *Machine) dispatch(out []Command) []Command {
	m.replayShut, m.purse.short, m.hold.on = false, false, false
	if len(m.apart.ended) > 0 {
		out = m.giveUp(out)
	}
	if m.global.active {
		return m.sendScout(out)
	}
	if m.ready > 0 {
		out = m.sendProbes(out)
	}
	out = m.sendWaiting(out)
	if m.apart.n > 0 {
		out = m.sendApart(out)
	}
	return out
}

// sendWaiting starts the items that wait for a lane.
func (m *Machine) sendWaiting(out []Command) []Command {
	if m.fresh.able.len() == 0 && m.redo.able.len() == 0 && m.owing.able.len() == 0 {
		return out
	}
	for (m.free > 0 || m.firsts > 0) && !m.groupFull() {
		firsts := m.firsts
		if firsts > 0 {
			out = m.sendFirsts(out)
		}
		for sent := m.counts.sent - 1; sent != m.counts.sent && m.redo.able.len()+m.owing.able.len() > 0; {
			sent = m.counts.sent // each start may let one of the same key follow
			out = m.drain(&m.redo, maxScan, out)
			out = m.drain(&m.owing, maxScan, out)
		}
		if m.fresh.able.len() > 0 && m.mayHold() {
			out = m.spread(out)
		} else if m.fresh.able.len() > 0 {
			most := 1 // nothing but order and binding distinguishes new items
			if m.binds || m.keyed > 0 {
				most = m.cfg.Ahead
			}
			out = m.drain(&m.fresh, most, out)
		}
		if m.firsts == firsts {
			break
		}
		// A lane that was kept for one item has been freed: those passed over may go there.
	}
	return out
}

// freshFirst reports whether a new item goes before a failed one to a lane that took a failed one
// last. So failing data takes at most every second place of each lane.
func (m *Machine) freshFirst() bool {
	if m.fresh.able.len() == 0 || m.mayHold() {
		return false
	}
	it := m.fresh.able.at(0)
	return !it.keyed() && !m.replayHolds(it)
}

// sendFirsts starts the items for which lanes are kept, wherever they stand in the send buffer.
func (m *Machine) sendFirsts(out []Command) []Command {
	for _, l := range m.up {
		it := l.run.first
		if it == nil || it.state != inRedo || m.groupFull() {
			continue
		}
		to, delay := m.choose(it)
		if to != nil {
			m.queueOf(it).remove(it)
			out = m.start(it, to, Turn, out)
		} else if delay {
			m.queueOf(it).remove(it)
			m.delay(it)
		}
	}
	return out
}

// maxScan bounds the items that are passed over in the send buffer at one step because they wait
// for a lane.
const maxScan = 64

// drain starts items of q in order, passing over up to most that must wait for a lane.
func (m *Machine) drain(q *queue, most int, out []Command) []Command {
	b := &q.able
	for i := 0; i < b.len() && most > 0; {
		if m.free == 0 && q == &m.fresh || m.groupFull() || q == &m.owing && m.broke() {
			break
		}
		it := b.at(i)
		if m.replayHolds(it) {
			break
		}
		l, delay := m.choose(it)
		switch {
		case l != nil:
			b.removeAt(i)
			out = m.start(it, l, Turn, out)
		case delay:
			b.removeAt(i)
			m.delay(it)
		default:
			if _, ok := it.turn(); ok {
				most--
				i++
			} else {
				q.block(i)
			}
		}
	}
	return out
}

// replayHolds says whether the replay bound keeps it from being sent for the first time.
func (m *Machine) replayHolds(it *item) bool {
	if it.counted || m.cfg.Replay == 0 {
		return false
	}
	held := m.started + m.unsaved
	if held > 0 && held+it.bytes > m.cfg.Replay {
		m.replayShut = true
	}
	return m.replayShut
}

// choose picks the lane of the next attempt of it; nil: it waits for one or for the budget, or, if
// delay, for its retry policy.
func (m *Machine) choose(it *item) (l *lane, delay bool) {
	if it.charged && m.broke() {
		return nil, false
	}
	if it.isolated() {
		if m.free == 0 {
			return nil, false
		}
		return m.pick(it), false
	}
	only, ok := it.turn()
	switch {
	case !ok:
		m.unfirst(it) // an older item of its keys comes first
		return nil, false
	case only != nil:
		if only.places == 0 {
			return nil, false
		}
		return only, false
	}
	if l := it.firstOf; l != nil {
		if m.mayReturn(it, l) {
			if it.failedAt(l) && !it.waited {
				return nil, true
			}
			if l.open && !l.run.broken && !l.gates.shut(m.now) && l.room(m.now, m.windowRoom(l)) > 0 {
				return l, false
			}
			return nil, false
		}
		m.unfirst(it) // another lane will take it: this one need not wait
	}
	if m.binds {
		return m.chooseBound(it)
	}
	return m.chooseOther(it)
}

// mayReturn says whether an item whose attempt at l did not deliver has no better lane: one that is
// open and has not failed it.
func (m *Machine) mayReturn(it *item, l *lane) bool {
	switch {
	case m.binds:
		return m.bound(it, l)
	case !it.failedAt(l):
		return true
	}
	for _, o := range m.up {
		if o != l && o.open && !it.failedAt(o) && !it.runsAt(o) {
			return false
		}
	}
	return true
}

// chooseBound leaves the item to the one lane that the dispatch policy has for it.
func (m *Machine) chooseBound(it *item) (*lane, bool) {
	l := m.pick(it)
	if l == nil || it.runsAt(l) {
		return nil, false
	}
	if it.failedAt(l) && !it.waited {
		return nil, true
	}
	return l, false
}

// chooseOther steers the item away from the lanes that failed it while any other is open, and
// always from those where it still runs.
func (m *Machine) chooseOther(it *item) (*lane, bool) {
	// Counting is enough nearly always: more lanes are open than have failed it or run it.
	other := m.open > len(it.tried)+len(it.running)
	if !other {
		again := false
		for _, l := range m.up {
			switch {
			case !l.open || it.runsAt(l):
			case it.failedAt(l):
				again = true
			default:
				other = true
			}
		}
		if !other && again && !it.waited {
			return nil, true
		}
	}
	m.masked = m.masked[:0]
	if other {
		for _, num := range it.tried {
			m.hide(num)
		}
	}
	for _, a := range it.running {
		m.hide(a.lane.num)
	}
	if it.charged && m.freshFirst() {
		for _, l := range m.up {
			if l.repeated {
				m.hide(l.num)
			}
		}
	}
	if len(m.masked) == m.free {
		m.unhide()
		return nil, false
	}
	l := m.pick(it)
	m.unhide()
	return l, false
}

// hide keeps dispatch from choosing this lane, until unhide.
func (m *Machine) hide(num int32) {
	if i, found := m.laneIndex(num); found {
		if at := m.lanes[i].at; at >= 0 && m.cands[at].Free {
			m.cands[at].Free = false
			m.masked = append(m.masked, at)
			m.changed(at)
		}
	}
}

func (m *Machine) unhide() {
	for _, i := range m.masked {
		m.cands[i].Free = true
		m.changed(i)
	}
}

// pick asks the dispatch policy.
func (m *Machine) pick(it *item) *lane {
	if i := m.chooser.Choose(m.now, it.cost, it.hash, m.cands); i >= 0 {
		return m.up[i]
	}
	return nil
}

// delay has it wait as Config.Retry says.
func (m *Machine) delay(it *item) {
	it.due = m.now + m.retryWait(it)
	it.waited = true
	it.state = inDelay
	m.delayed.push(it)
	m.retrying.add(it)
	m.retrying.away.note(m, it)
}

// retryWait draws how long it waits before its next attempt. A policy that gives up repeats its
// last wait.
func (m *Machine) retryWait(it *item) time.Duration {
	d, next, ok := m.cfg.Retry.Next(it.retry, m.src)
	if !ok {
		return max(it.retry.Prev, 0)
	}
	it.retry = next
	return max(d, 0)
}

// bound says whether l is the lane that the dispatch policy has for it, free or not.
func (m *Machine) bound(it *item, l *lane) bool {
	was := m.cands[l.at].Free
	m.cands[l.at].Free = true
	i := m.chooser.Choose(m.now, it.cost, it.hash, m.cands)
	m.cands[l.at].Free = was
	return i == l.at
}

// start begins an attempt of it at l. It is in no queue any more.
func (m *Machine) start(it *item, l *lane, why Why, out []Command) []Command {
	m.unfirst(it)
	if !it.counted {
		it.counted = true
		m.unsent -= it.bytes
		m.started += it.bytes
		m.hold.crowd = min(m.hold.crowd+1, plenty)
	}
	it.state, it.waited = inFlight, false
	it.number++
	m.counts.started(it.number)
	a := m.attempts.add()
	m.last = a
	a.item, a.lane, a.cost, a.sent = it, l, it.cost, m.now
	if why == Turn && it.charged {
		m.purse.pay(a, m.now)
	}
	l.repeated = it.number > 1 && why == Turn
	it.charged, it.short = false, false
	it.running = append(it.running, a)
	m.retrying.remove(it)
	m.flies(it, l, 1)
	if l.flying == 0 {
		l.heard = m.now
	}
	l.flying++
	l.flyingCost += a.cost
	l.used = m.now
	m.flyingCost += a.cost
	a.ahead, a.progress, a.epoch, a.together = l.flyingCost-l.stuck.cost, l.est.delivered, l.said.epoch, m.flyingCost
	c := Command{Kind: Start, Why: why, Seq: it.seq, ID: a.id, Lane: l.num, Number: it.number}
	if l.limits.Ordered {
		m.enlist(l, a)
		c.Run, c.Place = a.run, a.place
	}
	m.dirty = l.gates.started(m.now, a) || m.dirty
	if m.shared.shut(m.now) {
		m.refreshAll()
	}
	if why == Apart {
		a.apart = true
		l.outs.apart++
		l.stuck.leaves(a)
		m.apart.running++
		m.refresh(l)
		return append(out, c)
	}
	c.Expect = m.occupy(a)
	return append(out, c)
}

// occupy has a take its place in the window of its lane, and returns when it is overdue; 0: never.
func (m *Machine) occupy(a *attempt) (overdue time.Duration) {
	l := a.lane
	l.awaited++
	l.awaitedCost += a.cost
	m.awaited++
	m.awaitedCost += a.cost
	l.outs.add(a)
	a.lost, a.level = l.outs.cost, l.awaited-l.outs.suspects
	l.refuses.started(a)
	room := m.windowRoom(l)
	a.limited = room <= 0
	if g := &m.group; g.win != nil {
		a.groupEpoch, a.crowded = g.win.Epoch(), m.groupFull()
		a.limited = a.limited && !a.crowded
	}
	if m.cfg.Timeout >= 0 {
		if a.deadline = m.now + m.cfg.Timeout; m.cfg.Timeout == 0 {
			a.deadline = m.now + m.patience(l, a)
		}
		a.soon = 0
		if l.stuck.sure() {
			a.soon = m.now + longAt(a, &l.est)
		}
		m.overdue.push(a)
	}
	if m.wary(l) {
		l.br.trial = a
	}
	m.seats(l, room)
	m.changed(l.at)
	return a.deadline
}
