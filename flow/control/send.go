//penstock:pure

package control

// dispatch starts items as far as possible: probes of lanes that are to be tried again, then items
// sent before, oldest first, then new ones, then suspects.
func (d *dispatcher) dispatch(out []Command) []Command {
	d.settlement.replay.shut, d.backlog.bucket.short, d.hold.on = false, false, false
	if len(d.backlog.apart.ended) > 0 {
		out = d.settlement.giveUp(out)
	}
	if d.lanes.global.active {
		return d.sendScout(out)
	}
	if d.lanes.ready > 0 {
		out = d.sendProbes(out)
	}
	out = d.sendWaiting(out)
	if d.backlog.apart.n > 0 {
		out = d.sendApart(out)
	}
	return out
}

// sendWaiting starts the items that wait for a lane.
func (d *dispatcher) sendWaiting(out []Command) []Command {
	if d.backlog.fresh.able.len() == 0 && d.backlog.repeats() == 0 {
		return out
	}
	for (d.lanes.free > 0 || d.lanes.firsts > 0) && !d.group.isFull() {
		firsts := d.lanes.firsts
		if firsts > 0 {
			out = d.sendFirsts(out)
		}
		for sent := d.attempts.counts.sent - 1; sent != d.attempts.counts.sent && d.backlog.repeats() > 0; {
			sent = d.attempts.counts.sent // each start may let one of the same key follow
			out = d.drain(&d.backlog.redo, maxScan, out)
			out = d.drain(&d.backlog.owing, maxScan, out)
		}
		if d.backlog.fresh.able.len() > 0 && d.mayHold() {
			out = d.spread(out)
		} else if d.backlog.fresh.able.len() > 0 {
			most := 1 // nothing but order and binding distinguishes new items
			if d.lanes.policy.binds || d.backlog.keyed > 0 {
				most = d.cfg.Ahead
			}
			out = d.drain(&d.backlog.fresh, most, out)
		}
		if d.lanes.firsts == firsts {
			break
		}
		// A lane that was kept for one item has been freed: those passed over may go there.
	}
	return out
}

// freshFirst reports whether a new item goes before a failed one to a lane that took a failed one
// last. So failing data takes at most every second place of each lane.
func (d *dispatcher) freshFirst() bool {
	if d.backlog.fresh.able.len() == 0 || d.mayHold() {
		return false
	}
	it := d.backlog.fresh.able.at(0)
	only, inTurn := it.turn()
	return inTurn && only == nil && !d.settlement.replay.holds(it)
}

// sendFirsts starts the items for which lanes are kept, wherever they stand in the send buffer.
func (d *dispatcher) sendFirsts(out []Command) []Command {
	for _, l := range d.lanes.up {
		it := l.run.first
		if it == nil || it.state != inRedo || d.group.isFull() {
			continue
		}
		to, delay := d.choose(it)
		if to != nil {
			d.backlog.queueOf(it).remove(it)
			out = d.attempts.start(it, to, Turn, out)
		} else if delay {
			d.backlog.queueOf(it).remove(it)
			d.backlog.delay(it)
		}
	}
	return out
}

// maxScan bounds the items that are passed over in the send buffer at one step because they wait
// for a lane.
const maxScan = 64

// drain starts items of q in order, passing over up to most that must wait for a lane.
func (d *dispatcher) drain(q *queue, most int, out []Command) []Command {
	b := &q.able
	for i := 0; i < b.len() && most > 0; {
		if d.lanes.free == 0 && q == &d.backlog.fresh || d.group.isFull() ||
			q == &d.backlog.owing && d.backlog.outOfTokens() {
			break
		}
		it := b.at(i)
		if d.settlement.replay.holds(it) {
			break
		}
		l, delay := d.choose(it)
		switch {
		case l != nil:
			b.removeAt(i)
			out = d.attempts.start(it, l, Turn, out)
		case delay:
			b.removeAt(i)
			d.backlog.delay(it)
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

// choose picks the lane of the next attempt of it; nil: it waits for one or for the budget, or, if
// delay, for its retry policy.
func (d *dispatcher) choose(it *item) (l *lane, delay bool) {
	if it.charged && d.backlog.outOfTokens() {
		return nil, false
	}
	if it.isolated() {
		if d.lanes.free == 0 {
			return nil, false
		}
		return d.lanes.pick(it), false
	}
	only, ok := it.turn()
	switch {
	case !ok:
		d.lanes.unfirst(it) // an older item of its keys comes first
		return nil, false
	case only != nil:
		if only.places == 0 {
			return nil, false
		}
		return only, false
	}
	if l := it.firstOf; l != nil {
		if d.mayReturn(it, l) {
			if it.failedAt(l) && !it.waited {
				return nil, true
			}
			if l.open && !l.gates.shut(d.now, forFirst) {
				return l, false
			}
			return nil, false
		}
		d.lanes.unfirst(it) // another lane will take it: this one need not wait
	}
	if d.lanes.policy.binds {
		return d.chooseBound(it)
	}
	return d.chooseOther(it)
}

// mayReturn reports whether an item has no better lane than l, which did not deliver it: one that
// is open and has not failed it.
func (d *dispatcher) mayReturn(it *item, l *lane) bool {
	switch {
	case d.lanes.policy.binds:
		return d.lanes.bound(it, l)
	case !it.failedAt(l):
		return true
	}
	for _, o := range d.lanes.up {
		if o != l && o.open && !it.failedAt(o) && !it.runsAt(o) {
			return false
		}
	}
	return true
}

// chooseBound leaves the item to the one lane that the dispatch policy has for it.
func (d *dispatcher) chooseBound(it *item) (*lane, bool) {
	l := d.lanes.pick(it)
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
func (d *dispatcher) chooseOther(it *item) (*lane, bool) {
	// Counting is enough nearly always: more lanes are open than have failed it or run it.
	other := d.lanes.open > len(it.tried)+len(it.running)
	if !other {
		again := false
		for _, l := range d.lanes.up {
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
	d.lanes.masked = d.lanes.masked[:0]
	if other {
		for _, num := range it.tried {
			d.lanes.hide(num)
		}
	}
	for _, a := range it.running {
		d.lanes.hide(a.lane.num)
	}
	if it.charged && d.freshFirst() {
		for _, l := range d.lanes.up {
			if l.repeated {
				d.lanes.hide(l.num)
			}
		}
	}
	if len(d.lanes.masked) == d.lanes.free {
		d.lanes.unhide()
		return nil, false
	}
	l := d.lanes.pick(it)
	d.lanes.unhide()
	return l, false
}
