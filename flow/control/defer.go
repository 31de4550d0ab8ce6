//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// History is the past of an item that waits. The zero value is the history of a new item.
type History struct {
	Attempts uint32        // so far; 0: the item is new
	Failures uint32        // that are evidence against the item
	Suspect  bool          // the item fails although its workers deliver others
	Elapsed  time.Duration // counts towards End.Elapsed
	Retry    backoff.State
}

// deferring passes items with long waits to the owner of the machine, such as flow.Sender, so that
// they take no memory of the machine. The owner offers them again when they are due.
//
//	fails               a moment later             due
//	  |------ Wait -------|------ Defer, Held -------|------ Offer with its History
//
// An item stays in the machine for that moment, because later deliveries by the lane that failed it
// may be evidence against it. Items with keys or with a running attempt stay until they are due.
type deferring struct {
	queue    []deferral       // in the order of at
	newWaits []deferral       // waits that began in this step
	asked    map[uint64]*item // items with a Defer that is not answered yet
	kept     amount           // by the owner
	returned [numReturned]int // items offered again and not sent since
}

// deferral is a waiting item.
type deferral struct {
	itemRef
	at time.Duration // when it is to leave the machine
}

const (
	// minDeferWait is the shortest wait that is reported to the owner.
	minDeferWait = time.Second
	// A waiting item stays in the machine for deferHold, or for deferRounds round trips of its last
	// lane if that is longer, before it is passed to the owner.
	deferHold   = 50 * time.Millisecond
	deferRounds = 3
)

// returned is the kind of an item that the owner kept during its wait and has offered again.
type returned uint8

const (
	notReturned returned = iota // also if the item was sent since
	retryReturned
	suspectReturned
	numReturned
)

// maxReturned bounds the items of each kind that were offered again and not sent since.
var maxReturned = [numReturned]int{retryReturned: 8, suspectReturned: 2}

func returnedAs(suspect bool) returned {
	if suspect {
		return suspectReturned
	}
	return retryReturned
}

// addWait notes that the item waits until it.due, if the wait is long enough for the item to
// leave the machine.
func (d *deferring) addWait(b *backlog, it *item) {
	if !b.cfg.Defer || it.keyed() || it.due-b.now < minDeferWait {
		return
	}
	d.newWaits = append(d.newWaits, deferral{itemRef: it.ref()})
	hold := deferHold
	if n := len(it.tried); n > 0 {
		if l := b.lanes.get(it.tried[n-1]); l != nil {
			hold = max(hold, deferRounds*l.est.smoothed())
		}
	}
	at := b.now + hold
	if n := len(d.queue); n > 0 {
		at = max(at, d.queue[n-1].at)
	}
	d.queue = append(d.queue, deferral{it.ref(), at})
}

// waitsNow reports whether a failed item must begin its wait at once. Other items begin it when it
// is their turn to be sent. With Config.Defer, an item without keys begins at once if every lane
// in use has failed it and none is Ordered, so that the owner soon learns of the wait.
func (d *deferring) waitsNow(b *backlog, it *item) bool {
	if !b.cfg.Defer || it.keyed() || len(it.tried) < b.lanes.inUse() {
		return false
	}
	for _, l := range b.lanes.up {
		if b.lanes.isInUse(l) && (l.limits.Ordered || !it.failedAt(l)) {
			return false
		}
	}
	return true
}

// deferWithoutToken makes items that need a token of the budget begin their waits, because the
// bucket is empty. In the queue they would keep their data in memory, and a restart would forget
// their last attempts.
func (b *backlog) deferWithoutToken() {
	ready := &b.retryWithToken.ready
	for i := 0; b.cfg.Defer && i < min(ready.len(), maxScan); {
		it := ready.at(i)
		if it.waited || it.keyed() || it.firstOf != nil {
			i++
			continue
		}
		ready.removeAt(i)
		b.delay(it)
	}
}

// waits reports whether the item still waits, and its remaining wait is long enough for it to leave
// the machine.
func (e *deferral) waits(now time.Duration) bool {
	return e.isDelayed() && e.item.due-now >= minDeferWait
}

// isDelayed reports whether the item waits until it is due.
func (r itemRef) isDelayed() bool {
	return r.item.seq == r.seq && (r.item.state == inDelay || r.item.state == inSuspects)
}

// report appends a Wait command for each wait that has begun in this step, and a Defer command for
// each item that is due to leave the machine.
func (d *deferring) report(b *backlog, out []Command) []Command {
	for i := range d.newWaits {
		if e := &d.newWaits[i]; e.waits(b.now) {
			out = append(out, e.item.wait(b, Wait))
		}
	}
	clear(d.newWaits)
	d.newWaits = d.newWaits[:0]
	for len(d.queue) > 0 && d.queue[0].at <= b.now {
		e := d.queue[0]
		d.queue[0] = deferral{}
		d.queue = d.queue[1:]
		if e.waits(b.now) && len(e.item.running) == 0 && d.asked[e.seq] == nil {
			d.asked[e.seq] = e.item
			out = append(out, e.item.wait(b, Defer))
		}
	}
	return out
}

// wait returns the command that reports a wait to the owner, a Wait or a Defer.
func (it *item) wait(b *backlog, kind CommandKind) Command {
	r := &it.account
	h := History{Attempts: it.number, Failures: uint32(r.failures), Suspect: r.suspect}
	h.Retry = it.retry
	if h.Failures > 0 {
		h.Elapsed = b.lanes.uptime.at(b.now) - r.since
	}
	return Command{Kind: kind, Seq: it.seq, Lane: -1, Number: it.number, Expect: it.due, History: h}
}

// next returns the time at which the next item is to leave, and false if there is none.
func (d *deferring) next() (at time.Duration, ok bool) {
	if len(d.queue) == 0 {
		return 0, false
	}
	return d.queue[0].at, true
}

// deferAnswered handles a Held event, which has the amount of all items that the owner of the
// machine (such as flow.Sender) keeps. If the event names an item, it is also the answer to the
// Defer of that item. The item then leaves the machine, unless the owner has refused it, it no
// longer waits, or an attempt of it runs.
func (s *settlement) deferAnswered(e *Event) {
	d := &s.backlog.retrying.deferred
	d.kept = amount{int(e.Pieces), e.Cost, e.Bytes}
	it := d.asked[e.Seq]
	if it == nil {
		return
	}
	delete(d.asked, e.Seq)
	if e.Outcome == Rejected || !(itemRef{it, e.Seq}).isDelayed() || len(it.running) > 0 {
		return
	}
	s.replay.remove(it)
	s.backlog.finish(it)
	s.backlog.release(it)
}

// resume restores the history of an item that is offered again. The item can be sent at once,
// because its wait is over.
func (d *deferring) resume(b *backlog, it *item, h *History) {
	r := &it.account
	it.number, it.retry = h.Attempts, h.Retry
	it.waited, it.needsToken = true, true
	r.failures, r.since = int(h.Failures), b.lanes.uptime.at(b.now)-h.Elapsed
	r.returned = returnedAs(h.Suspect)
	d.returned[r.returned]++
	if !h.Suspect {
		for _, l := range b.lanes.up { // after its wait, every lane may get the item
			it.tried = append(it.tried, l.num)
		}
		b.waitForLane(it)
		return
	}
	r.suspect = true
	b.suspects.unsettled++
	b.waitAsSuspect(it, b.now)
}

// Returns reports whether one more deferred item that is due may be offered again: a suspect if the
// argument is true, else an item that is no suspect. It may not if too many items of its kind were
// offered again and not sent since.
func (m *Machine) Returns(suspect bool) bool {
	class := returnedAs(suspect)
	return m.backlog.retrying.deferred.returned[class] < maxReturned[class]
}
