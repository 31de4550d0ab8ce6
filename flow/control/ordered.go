//penstock:pure

package control

// maxIndex limits the index of an attempt within a run of an Ordered lane (see [orderedRun]), which
// has 32 bits. From this index on, the run ends as soon as none of its attempts is running.
const maxIndex = 1 << 31

// addToRun appends attempt a to the lane's run.
func (t *attempts) addToRun(l *lane, a *attempt) {
	if l.run.num == 0 || l.run.oldest == nil && l.run.index >= maxIndex {
		t.newRun(l)
	}
	a.ordered = true
	a.run, a.index = l.run.num, l.run.index
	l.run.index++
	if l.run.newest == nil {
		l.run.oldest = a
	} else {
		l.run.newest.next = a
	}
	l.run.newest = a
}

// concludeRun applies the outcomes of the run's answered attempts in order, up to the first
// unanswered one. After a failed attempt, the receiver must refuse all later ones. So they count as
// failed regardless of their answers, except for a Split. Items that the receiver accepted
// nevertheless are sent again, in order.
func (t *attempts) concludeRun(l *lane, out []Command) []Command {
	for l.run.oldest != nil && l.run.oldest.answered {
		a := l.run.oldest
		l.run.oldest = a.next
		if l.run.oldest == nil {
			l.run.newest = nil
		}
		switch {
		case l.run.halted && a.outcome != Split:
			out = t.returnAfterFailure(a, out)
		case a.outcome != Delivered:
			l.run.halted = true
			it := a.item
			out = t.conclude(a, out)
			if it.state == inRetry && l.isUp() && it.firstOf == nil && l.run.first == nil {
				it.firstOf, l.run.first = l, it
				t.lanes.firsts++
			}
		default:
			out = t.conclude(a, out)
		}
	}
	if l.run.oldest == nil && l.run.broken {
		t.newRun(l)
		l.run.broken, l.run.halted = false, false
	}
	return out
}

// newRun begins a new run at the Ordered lane l, with a number that no run has had before.
func (t *attempts) newRun(l *lane) {
	t.runs++
	l.run.num, l.run.index = t.runs, 0
}

// returnAfterFailure returns the item of attempt a to the queue of items that wait for a lane. The
// attempt failed only because an earlier one of its run failed. So its failure counts neither
// against the item nor against the lane.
func (t *attempts) returnAfterFailure(a *attempt, out []Command) []Command {
	it := a.item
	t.detach(a)
	t.breakers.releaseProbe(a)
	if a.outcome == Delivered && it.state == isDone {
		t.settlement.counts.duplicates++
	}
	t.backlog.budget.refund(a, t.now)
	t.backlog.requeueAnswered(it, nil)
	t.table.remove(a)
	out = t.settlement.carryOutDecision(it, out)
	t.backlog.release(it)
	return out
}
