//penstock:pure

package control

// dispatch starts as many items as the lanes have room for: first probes, then items sent before,
// then new items, then suspects. During the global backoff, in which all lanes are paused because
// none delivers, it sends only a probe.
func (d *dispatcher) dispatch(out []Command) []Command {
	d.settlement.replay.shut, d.backlog.budget.awaited, d.hold.active = false, false, false
	if len(d.backlog.suspects.toGiveUp) > 0 {
		out = d.settlement.giveUp(out)
	}
	if d.lanes.global.active {
		return d.sendGlobalProbe(out)
	}
	if d.lanes.probesDue > 0 {
		out = d.sendProbes(out)
	}
	out = d.sendWaiting(out)
	if d.backlog.suspects.n > 0 {
		out = d.sendSuspects(out)
	}
	return out
}

// sendWaiting starts items that wait for a lane, as far as lanes have room.
func (d *dispatcher) sendWaiting(out []Command) []Command {
	if d.backlog.fresh.ready.len() == 0 && d.backlog.repeats() == 0 {
		return out
	}
	for (d.lanes.free > 0 || d.lanes.firsts > 0) && !d.group.isFull() {
		firsts := d.lanes.firsts
		if firsts > 0 {
			out = d.sendFirsts(out)
		}
		for sent := d.attempts.counts.sent - 1; sent != d.attempts.counts.sent && d.backlog.repeats() > 0; {
			sent = d.attempts.counts.sent // each start may allow another item of the same key
			out = d.sendQueue(&d.backlog.retry, maxScan, out)
			out = d.sendQueue(&d.backlog.retryWithToken, maxScan, out)
		}
		if d.backlog.fresh.ready.len() > 0 && d.mayHold() {
			out = d.sendOrHold(out)
		} else if d.backlog.fresh.ready.len() > 0 {
			most := 1 // without keys or binding, all new items wait for the same reason
			if d.lanes.policy.binds || d.backlog.keyed > 0 {
				most = d.cfg.Ahead
			}
			out = d.sendQueue(&d.backlog.fresh, most, out)
		}
		if d.lanes.firsts == firsts {
			break
		}
		// A lane no longer waits for its first item: items that were passed over may go there.
	}
	return out
}

// freshFirst reports whether the next new item can start at any lane. If so, a lane that got a
// failed item last gets a new item next, before another failed one. So failing data takes at most
// every second place of a lane. New items that wait for an earlier item of their keys are passed
// over.
func (d *dispatcher) freshFirst() bool {
	q := &d.backlog.fresh
	for q.ready.len() > 0 {
		it := q.ready.at(0)
		if d.settlement.replay.forbids(it) {
			return false
		}
		if only, inTurn := it.mayStart(); inTurn {
			return only == nil
		}
		q.block(0)
	}
	return false
}

// sendFirsts starts the items with which Ordered lanes must continue after a failure (the first
// items of their next runs), even if other items have waited longer.
func (d *dispatcher) sendFirsts(out []Command) []Command {
	for _, l := range d.lanes.up {
		it := l.run.first
		if it == nil || it.state != inRetry || d.group.isFull() {
			continue
		}
		to, delay := d.choose(it)
		if to != nil {
			d.backlog.queueOf(it).remove(it)
			out = d.attempts.start(it, to, InOrder, out)
		} else if delay {
			d.backlog.queueOf(it).remove(it)
			d.backlog.delay(it)
		}
	}
	return out
}

// maxScan bounds the items of retry or retryWithToken that one scan of the queue passes over.
const maxScan = 64

// sendQueue starts items of q in order. Items that must wait for a lane are passed over; sendQueue
// stops when their number reaches the parameter most.
func (d *dispatcher) sendQueue(q *queue, most int, out []Command) []Command {
	b := &q.ready
	for i := 0; i < b.len() && most > 0; {
		if d.lanes.free == 0 && q == &d.backlog.fresh || d.group.isFull() {
			break
		}
		if q == &d.backlog.retryWithToken && d.backlog.outOfTokens() {
			d.backlog.deferWithoutToken()
			break
		}
		it := b.at(i)
		if d.settlement.replay.forbids(it) {
			break
		}
		l, delay := d.choose(it)
		switch {
		case l != nil:
			b.removeAt(i)
			out = d.attempts.start(it, l, InOrder, out)
		case delay:
			b.removeAt(i)
			d.backlog.delay(it)
		default:
			if _, ok := it.mayStart(); ok {
				most--
				i++
			} else {
				q.block(i)
			}
		}
	}
	return out
}

// choose returns the lane for the next attempt of the item. If l is nil, the item must wait: for
// its retry policy if delay is true, else for a lane, for a token of the retry budget, or for an
// earlier item of its keys.
func (d *dispatcher) choose(it *item) (l *lane, delay bool) {
	if it.needsToken && d.backlog.outOfTokens() {
		return nil, false
	}
	if it.isolated() {
		if d.lanes.free == 0 {
			return nil, false
		}
		return d.lanes.pick(it), false
	}
	only, ok := it.mayStart()
	switch {
	case !ok:
		d.lanes.clearFirst(it) // an older item of its keys comes first
		return nil, false
	case only != nil:
		if only.room == 0 {
			return nil, false
		}
		return only, false
	}
	if l := it.firstOf; l != nil {
		if d.mayReturn(it, l) {
			if it.failedAt(l) && !it.waited {
				return nil, true
			}
			if l.available && !l.gates.shut(d.now, forFirst) {
				return l, false
			}
			return nil, false
		}
		d.lanes.clearFirst(it) // another lane will take the item, so l need not wait for it
	}
	if d.lanes.policy.binds {
		return d.chooseBound(it)
	}
	return d.chooseOther(it)
}

// mayReturn reports whether an item may return to l, which did not deliver it. It may if l did not
// fail the item, or if every other available lane has failed it, too, or runs it. A dispatch policy
// that assigns items to lanes decides this itself.
func (d *dispatcher) mayReturn(it *item, l *lane) bool {
	switch {
	case d.lanes.policy.binds:
		return d.lanes.wouldPick(it, l)
	case !it.failedAt(l):
		return true
	}
	for _, o := range d.lanes.up {
		if o != l && o.available && !it.failedAt(o) && !it.runsAt(o) {
			return false
		}
	}
	return true
}

// chooseBound is choose for a dispatch policy that assigns each item to one lane.
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

// chooseOther is choose for a dispatch policy that assigns no item to a certain lane. While another
// lane is available, it avoids the lanes that failed the item. It always avoids the lanes where the
// item still runs.
func (d *dispatcher) chooseOther(it *item) (*lane, bool) {
	// Usually counting is enough: more lanes are available than have failed or run the item.
	other := d.lanes.available > len(it.tried)+len(it.running)
	if !other {
		again := false
		for _, l := range d.lanes.up {
			switch {
			case !l.available || it.runsAt(l):
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
	d.lanes.hidden = d.lanes.hidden[:0]
	if other {
		for _, num := range it.tried {
			d.lanes.hide(num)
		}
	}
	for _, a := range it.running {
		d.lanes.hide(a.lane.num)
	}
	if it.needsToken && d.freshFirst() {
		for _, l := range d.lanes.up {
			slow := l.est.raise > 0 || l.win.probe.on && l.hanging.isRecent()
			if l.repeated || slow {
				d.lanes.hide(l.num)
			}
		}
	}
	if len(d.lanes.hidden) == d.lanes.free {
		d.lanes.unhide()
		return nil, false
	}
	l := d.lanes.pick(it)
	d.lanes.unhide()
	return l, false
}
