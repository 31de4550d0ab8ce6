//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// answer takes the end of an attempt's Deliver.
func (m *Machine) answer(e *Event, out []Command) []Command {
	a := m.attempts.find(e.ID)
	if a == nil || e.Outcome < Delivered || e.Outcome > Split {
		return out
	}
	l := a.lane
	full := m.free == 0
	if m.groupFull() { // full all the time, or again
		full, a.crowded = true, true
	} else {
		a.limited = a.limited || !a.overdue && m.windowRoom(l) <= 0
	}
	if a.at >= 0 {
		m.overdue.removeAt(a.at)
	}
	l.outs.drop(a)
	a.late = a.overdue
	l.flying--
	l.flyingCost -= a.cost
	m.flyingCost -= a.cost
	if a.apart {
		l.outs.apart--
	} else if !a.overdue && !a.away {
		m.unawait(a)
	}
	l.stuck.returned(a)
	shut := m.shared.shut(m.now)
	if l.gates.ended(a); shut && !m.shared.shut(m.now) {
		m.refreshAll()
	}
	m.apart.spent(a, m.now)
	if l.flying == 0 { // the sums are of floats
		l.flyingCost, l.awaitedCost = 0, 0
	}
	if m.awaited == 0 {
		m.awaitedCost = 0
	}
	l.heard = m.now
	a.answered, a.outcome, a.after, a.died = true, e.Outcome, e.After, e.Died
	if m.peaks {
		l.note(m.now, (m.now - a.sent).Seconds())
	}
	m.restarted(l, &e.Report)
	if e.Outcome == Delivered {
		m.measure(a, a.cost, &e.Report, full)
	}
	if e.Outcome == Split {
		if a.partial = e.Cost > 0; a.partial { // the worker has looked at all of it
			m.measure(a, min(e.Cost, a.cost), &e.Report, full)
		}
		m.expectPieces(a, e.Pieces)
	}
	if a.ordered {
		l.run.broken = l.run.broken || e.Outcome != Delivered
		out = m.inOrder(l, out)
	} else {
		out = m.conclude(a, out)
	}
	l.reorder()
	m.refresh(l)
	m.forget(l)
	return out
}

// restarted starts over with a worker whose process is another one than before.
func (m *Machine) restarted(l *lane, r *Report) {
	if r.Epoch == 0 || r.Epoch == l.workerID { // 0: an answer that says nothing, such as a broken connection's
		return
	}
	if l.workerID != 0 {
		m.endProbe(l)
		l.est, l.known, l.tail = estimator{}, false, tail{}
		l.win.Reset(m.now)
		l.hear()
	}
	l.workerID = r.Epoch
}

// measure feeds estimator and window with a delivery. taken is the cost that was delivered or
// rejected.
func (m *Machine) measure(a *attempt, taken float64, r *Report, full bool) {
	l := a.lane
	rtt := m.now - a.sent
	seconds := rtt.Seconds()
	m.counts.delivered++
	l.limit.tell(m.now, a.sent)
	l.known = true
	l.stats.delivered++
	l.est.delivered += taken
	m.settleDoubts(a)
	if a.apart { // its round trip says nothing about the window
		return
	}
	l.est.sample(seconds, a.cost)
	l.outs.delivered = max(l.outs.delivered, a.sent)
	l.outs.suspect(m.now, l.est.overdueSoon())
	if l.stuck.delivered(l.outs.delivered, a.late) {
		l.win.OnUndo(m.now)
	}
	suspects := l.outs.suspects
	if l.stuck.sure() {
		suspects = 0
	}
	sample := window.Sample{
		Now: m.now, RoundTrip: rtt, Normal: toDuration(l.est.normal(seconds, a.cost)), Cost: a.cost, Mean: l.est.mean,
		InFlightAtSend: a.ahead, Lost: a.lost, Suspects: suspects, Done: l.est.delivered - a.progress,
		Limited: a.limited, Late: a.late, Epoch: a.epoch,
		Advert: window.Advert{
			Valid: r.Epoch != 0, Credit: r.Credit, Taken: r.Taken, Batches: r.Batches, QueueLen: r.QueueLen, Wait: r.QueueWait,
		},
	}
	if l.starter != nil {
		l.refuses.taken(m.now, a)
		l.refuses.within(l.said.limit)
	}
	if a.late {
		l.stats.late++
		l.est.spurious()
		l.win.OnUndo(m.now)
		l.win.OnSample(sample)
		l.hear()
		m.observe(l, sample.Normal)
		return
	}
	l.est.inTime()
	l.est.progress(m.now, seconds, a.cost, a.ahead, l.est.delivered-a.progress)
	m.observe(l, sample.Normal)
	if m.group.phase <= wholePhase { // windows rest while half of the lanes pause: that tells nothing of the whole
		l.win.OnSample(sample)
		m.probe(l, a.limited)
		l.hear()
	}
	m.grouped(a, &sample, seconds, full)
}

// unawait takes a out of what the windows count.
func (m *Machine) unawait(a *attempt) {
	a.lane.awaited--
	a.lane.awaitedCost -= a.cost
	m.awaited--
	m.awaitedCost -= a.cost
}

// timeout takes an attempt as overdue: its worker is BUSY, and another one is tried, unless the
// order of keys forbids it while the attempt runs.
func (m *Machine) timeout(a *attempt) {
	l, it := a.lane, a.item
	a.overdue = true
	l.outs.drop(a)
	if !a.away {
		m.unawait(a)
	}
	overtaken := a.sent < l.outs.delivered
	l.stuck.overdue(a, overtaken)
	l.stats.timedOut++
	if l.br.trial == a {
		l.br.trial = nil
	}
	if a.canceled {
		return
	}
	window, breaker := m.faults(a, TimedOut)
	if window && !overtaken {
		l.win.OnTimeout(m.now, a.cost)
		l.hear()
		if a != l.br.probe && a != m.global.probe && !l.stuck.sure() {
			l.est.double(m.now, a.sent) // a probe's wait is doubled by the breaker
		}
	}
	if breaker {
		m.failed(l, a, TimedOut)
	}
	m.requeue(it, l)
}

// requeue puts it into the send buffer, as its attempt at l is overdue, if nothing forbids it.
func (m *Machine) requeue(it *item, l *lane) {
	if it.state == inFlight && !it.keyed() && it.fate == undecided && !it.awaited() {
		m.again(it, l)
	}
}

// conclude does what the outcome asks for, to the lane and to the item.
func (m *Machine) conclude(a *attempt, out []Command) []Command {
	l, it := a.lane, a.item
	m.land(a)
	switch a.outcome {
	case Delivered:
		m.succeeded(l, a)
		out = m.deliver(it, a, out)
	case Throttled:
		m.throttle(a)
		m.purse.refund(a)
		m.put(it, nil)
		it.waited = it.waited || it.state == inRedo // at the gate
	case Retryable, TimedOut:
		if m.deadly(a) {
			m.succeeded(l, a)
			out = m.convict(it, out)
			break
		}
		m.nack(a)
		m.put(it, l)
	case Rejected:
		m.succeeded(l, a)
		out = m.reject(it, out)
	case Misconfigured:
		if !a.canceled {
			l.stats.failed++
			m.failed(l, a, Misconfigured)
		}
		m.purse.refund(a)
		m.put(it, nil)
	case Split:
		if a.partial {
			m.succeeded(l, a)
		} else {
			m.nack(a)
		}
		out = m.settlePieces(a, out)
		m.put(it, l) // only if no pieces follow
	}
	out = m.refuse(it, out)
	m.settleProbes(a)
	m.attempts.remove(a)
	m.release(it)
	return out
}

// land takes a out of its item: it does not run any more.
func (m *Machine) land(a *attempt) {
	a.item.drop(a)
	m.flies(a.item, a.lane, -1)
}

// settleProbes lets another probe go if a was one and decided nothing.
func (m *Machine) settleProbes(a *attempt) {
	if a.lane.br.probe == a {
		a.lane.br.probe = nil
	}
	if a.lane.br.trial == a {
		a.lane.br.trial = nil
	}
	if a.lane.refuses.trial == a {
		a.lane.refuses.trial = nil
	}
	if m.global.probe == a {
		m.global.probe = nil
	}
}

// nack takes a retryable answer; one that was overdue has been counted as a timeout.
func (m *Machine) nack(a *attempt) {
	l := a.lane
	if a.late || a.canceled {
		return
	}
	l.stats.failed++
	window, breaker := m.faults(a, a.outcome)
	switch {
	case !window:
	case a.outcome == TimedOut:
		l.win.OnTimeout(m.now, a.cost)
	case l.starter == nil:
		l.win.OnNack(m.now, a.cost)
	default:
		m.refusal(l, a)
	}
	l.hear()
	if breaker {
		m.failed(l, a, failureOf(a.outcome))
	}
}

// failureOf returns what a failure counts as: a Split that settled nothing is a retryable answer.
func failureOf(o Outcome) Outcome {
	if o == Split {
		return Retryable
	}
	return o
}

// refusal takes in a retryable answer: it tells of the level above which the worker refuses, or of
// one in distress, or it came by chance.
func (m *Machine) refusal(l *lane, a *attempt) {
	known, lower := l.refuses.refused(m.now, a, l.est.smoothed())
	switch {
	case lower:
		l.starter.Refused(m.now, float64(l.refuses.from-1))
	case !known && l.refuses.distressed():
		l.win.OnNack(m.now, a.cost)
	}
}

// throttle closes the gate of a lane that is alive but full.
func (m *Machine) throttle(a *attempt) {
	l := a.lane
	l.stats.throttled++
	if a.canceled {
		return
	}
	if l.br.probe == a {
		m.closeBreaker(l)
	}
	if m.global.probe == a {
		m.recovered(l)
	}
	l.limit.refused(m.now, a.sent)
	if m.now < l.throttle.until {
		return
	}
	after := m.jitter(min(a.after, maxThrottle), 1, 1.1)
	if a.after <= 0 {
		after = m.wait(&l.throttle.outage, nil, 0)
	}
	l.throttle.until = max(l.throttle.until, m.now+min(after, maxThrottle))
	m.dirty = true
}

// maxThrottle bounds how long a worker may close its gate at once.
const maxThrottle = 5 * time.Minute

// put returns it to the send buffer after an attempt that did not deliver it, if nothing else of it
// is awaited. failed is the lane that it should keep away from; nil: none.
func (m *Machine) put(it *item, failed *lane) {
	if failed != nil && it.state == inFlight && it.awaited() && !it.failedAt(failed) {
		it.tried = append(it.tried, failed.num) // a twin is out
	}
	if failed != nil && (it.state == inApart || it.state == inDelay) { // a late failure: the wait begins now
		m.leave(it)
		it.state = inFlight
		if it.account.suspect {
			m.again(it, failed)
		} else {
			m.delay(it)
		}
		return
	}
	if failed != nil && it.state == inRedo {
		it.waited = false
	}
	if it.state != inFlight || it.awaited() || it.keyed() && len(it.running) > 0 {
		return
	}
	it.interrupt()
	if it.fate != undecided {
		return
	}
	m.again(it, failed)
}

// again puts it into the send buffer.
func (m *Machine) again(it *item, failed *lane) {
	if it.state != inFlight {
		return
	}
	if failed != nil {
		it.charged = true
		if !it.failedAt(failed) {
			it.tried = append(it.tried, failed.num)
		}
	}
	if it.account.suspect && (failed == nil || !failed.limits.Ordered) {
		due := m.now
		if failed != nil {
			due += m.retryWait(it)
		}
		m.setApart(it, due)
		return
	}
	if failed != nil && m.retrying.away.waitsNow(m, it) {
		m.delay(it)
		return
	}
	m.waitForLane(it)
}

// deliver settles it, once.
func (m *Machine) deliver(it *item, a *attempt, out []Command) []Command {
	a.lane.throttle.outage = outage{}
	if it.state == isDone {
		m.counts.duplicates++
		return out
	}
	if it.state == inHands { // cut or being buried: too late to stop that
		m.counts.duplicates++
		return out
	}
	m.purse.earn(a)
	m.blame.acknowledge(it, a.late)
	for _, f := range it.failures {
		if i, found := m.laneIndex(f.lane); found {
			m.lanes[i].doubts.wrong++
		}
	}
	out = append(out, Command{Kind: Settle, Seq: it.seq, ID: a.id, Lane: a.lane.num, Number: it.number})
	out = m.recall(a, out)
	m.settle(it)
	return out
}

// recall cancels what else runs of the item of a, as a has settled it. Attempts that are overdue go
// on, since their late answers tell how long their workers take; so does the one whose twin a is.
func (m *Machine) recall(a *attempt, out []Command) []Command {
	for _, o := range a.item.running {
		if o != a && !a.twin && !o.overdue && !o.ordered && !o.canceled {
			o.canceled = true
			out = append(out, Command{Kind: Cancel, Seq: a.item.seq, ID: o.id, Lane: o.lane.num})
		}
	}
	return out
}

// settle counts it and takes it out of the sequence.
func (m *Machine) settle(it *item) {
	m.counts.settled++
	if it.counted {
		m.started -= it.bytes
	} else {
		m.unsent -= it.bytes
	}
	m.unsaved += it.bytes
	m.finish(it)
}
