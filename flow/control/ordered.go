//penstock:pure

package control

// maxPlace ends a run of an Ordered lane when nothing of it is out; places count in 32 bits.
const maxPlace = 1 << 31

// enlist puts a at the end of the lane's run.
func (m *Machine) enlist(l *lane, a *attempt) {
	if l.run == 0 || l.oldest == nil && l.place >= maxPlace {
		m.newRun(l)
	}
	a.ordered = true
	a.run, a.place = l.run, l.place
	l.place++
	if l.newest == nil {
		l.oldest = a
	} else {
		l.newest.next = a
	}
	l.newest = a
}

// inOrder concludes the attempts of the run that have been answered, up to the first that has not. Once one
// has failed, all behind it have failed too, whatever they say: the receiver refuses them, and what it took
// in spite of that is sent again, in order.
func (m *Machine) inOrder(l *lane, out []Command) []Command {
	for l.oldest != nil && l.oldest.answered {
		a := l.oldest
		l.oldest = a.next
		if l.oldest == nil {
			l.newest = nil
		}
		switch {
		case l.halted && a.outcome != Split:
			out = m.consequence(a, out)
		case a.outcome != Delivered:
			l.halted = true
			it := a.item
			out = m.conclude(a, out)
			if it.state == inRedo && l.at >= 0 && it.firstOf == nil && l.first == nil {
				it.firstOf, l.first = l, it
				m.firsts++
			}
		default:
			out = m.conclude(a, out)
		}
	}
	if l.oldest == nil && l.broken {
		m.newRun(l)
		l.broken, l.halted = false, false
	}
	return out
}

// newRun gives l a run that no lane has had, also if its number comes and goes.
func (m *Machine) newRun(l *lane) {
	m.runs++
	l.run, l.place = m.runs, 0
}

// consequence puts back an item that failed because one before it in the run did: no fault of its own or of
// the lane's.
func (m *Machine) consequence(a *attempt, out []Command) []Command {
	it := a.item
	m.land(a)
	m.settleProbes(a)
	if a.outcome == Delivered && it.state == isDone {
		m.duplicates++
	}
	m.refund(a)
	m.put(it, nil)
	m.freeAttempt(a)
	out = m.refuse(it, out)
	m.release(it)
	return out
}

// unfirst lets the lane that waits for it go on.
func (m *Machine) unfirst(it *item) {
	if l := it.firstOf; l != nil {
		it.firstOf, l.first = nil, nil
		m.firsts--
		m.refresh(l)
	}
}
