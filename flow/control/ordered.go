//penstock:pure

package control

// maxPlace ends a run of an Ordered lane when nothing of it is out; places count in 32 bits.
const maxPlace = 1 << 31

// enlist puts a at the end of the lane's run.
func (m *Machine) enlist(l *lane, a *attempt) {
	if l.run.num == 0 || l.run.oldest == nil && l.run.place >= maxPlace {
		m.newRun(l)
	}
	a.ordered = true
	a.run, a.place = l.run.num, l.run.place
	l.run.place++
	if l.run.newest == nil {
		l.run.oldest = a
	} else {
		l.run.newest.next = a
	}
	l.run.newest = a
}

// inOrder concludes the attempts of the run that have been answered, up to the first that has not.
// Once one has failed, all behind it have failed too, whatever they say: the receiver refuses them,
// and what it took in spite of that is sent again, in order.
func (m *Machine) inOrder(l *lane, out []Command) []Command {
	for l.run.oldest != nil && l.run.oldest.answered {
		a := l.run.oldest
		l.run.oldest = a.next
		if l.run.oldest == nil {
			l.run.newest = nil
		}
		switch {
		case l.run.halted && a.outcome != Split:
			out = m.consequence(a, out)
		case a.outcome != Delivered:
			l.run.halted = true
			it := a.item
			out = m.conclude(a, out)
			if it.state == inRedo && l.at >= 0 && it.firstOf == nil && l.run.first == nil {
				it.firstOf, l.run.first = l, it
				m.firsts++
			}
		default:
			out = m.conclude(a, out)
		}
	}
	if l.run.oldest == nil && l.run.broken {
		m.newRun(l)
		l.run.broken, l.run.halted = false, false
	}
	return out
}

// newRun gives l a run that no lane has had, also if its number comes and goes.
func (m *Machine) newRun(l *lane) {
	m.runs++
	l.run.num, l.run.place = m.runs, 0
}

// consequence puts back an item that failed because one before it in the run did: no fault of its
// own or of the lane's.
func (m *Machine) consequence(a *attempt, out []Command) []Command {
	it := a.item
	m.land(a)
	m.settleProbes(a)
	if a.outcome == Delivered && it.state == isDone {
		m.counts.duplicates++
	}
	m.purse.refund(a)
	m.put(it, nil)
	m.attempts.remove(a)
	out = m.refuse(it, out)
	m.release(it)
	return out
}

// unfirst lets the lane that waits for it go on.
func (m *Machine) unfirst(it *item) {
	if l := it.firstOf; l != nil {
		it.firstOf, l.run.first = nil, nil
		m.firsts--
		m.refresh(l)
	}
}
