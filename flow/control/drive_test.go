package control_test

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// offer offers an item if there is room, and reports whether there was.
func (w *model) offer(cost float64, bytes int64, keys ...uint32) bool {
	w.t.Helper()
	if !w.m.Room() {
		return false
	}
	w.seq++
	it := &modelItem{seq: w.seq, cost: cost, bytes: bytes, keys: keys}
	w.items[it.seq] = it
	w.order = append(w.order, it)
	w.largest = max(w.largest, bytes)
	w.step(control.Event{Kind: control.Offer, Seq: it.seq, Cost: cost, Bytes: bytes, Keys: keys})
	return true
}

// running returns the running attempts, oldest first.
func (w *model) running() []*modelTry {
	var ids []uint64
	for id := range w.tries {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var tries []*modelTry
	for _, id := range ids {
		tries = append(tries, w.tries[id])
	}
	return tries
}

// answer ends attempt x with an outcome. For a Split, the last parameter has the outcomes of its
// pieces.
func (w *model) answer(x *modelTry, outcome control.Outcome, after time.Duration, pieces ...control.Outcome) {
	w.t.Helper()
	delete(w.tries, x.id)
	it, l := x.item, w.lanes[x.lane]
	l.out--
	it.running--
	if !x.overdue && !x.apart {
		l.awaited--
	}
	if x.ordered {
		w.hold(x, l, outcome)
	}
	late := it.settled || it.gone || slices.ContainsFunc(w.asked, func(a ask) bool { return a.seq == it.seq })
	if outcome == control.Delivered && late {
		w.dups++
	}
	if late {
		pieces = nil
	}
	w.owe(x, outcome)
	w.answering = x
	died := w.died && (outcome == control.Retryable || outcome == control.TimedOut)
	if died && !late && !x.canceled {
		it.deaths++
	}
	done := 0.0
	for _, o := range pieces {
		if o != control.Retryable {
			done += it.cost / float64(len(pieces))
		}
	}
	w.step(control.Event{
		Kind: control.Answer, ID: x.id, Outcome: outcome, After: after, Pieces: uint32(len(pieces)),
		Cost: done, Died: died,
	})
	w.answering = nil
	w.pieces(it, pieces)
	w.died = false
}

// pieces replaces the item by pieces with these outcomes, which divide its cost and bytes.
func (w *model) pieces(it *modelItem, outcomes []control.Outcome) {
	w.t.Helper()
	if len(outcomes) == 0 {
		return
	}
	n := int64(len(outcomes))
	at := slices.Index(w.order, it)
	if at < 0 {
		w.fail("item %d is cut but not live", it.seq)
	}
	it.gone = true
	w.order = slices.Delete(w.order, at, at+1)
	var made []*modelItem
	for i, o := range outcomes {
		w.seq++
		p := &modelItem{seq: w.seq, cost: it.cost / float64(n), bytes: it.bytes / n, keys: it.keys, piece: true}
		if i == 0 {
			p.bytes += it.bytes % n
		}
		p.recall, p.aborted, p.starts = it.recall, it.aborted, 0
		p.special = o == control.Delivered || o == control.Rejected
		w.items[p.seq] = p
		made = append(made, p)
	}
	w.order = slices.Insert(w.order, at, made...)
	for i, p := range made {
		w.partial = i < len(made)-1
		died := w.died && outcomes[i] == control.Retryable
		if died {
			w.died, p.deaths = false, 1
		}
		w.step(control.Event{
			Kind: control.Piece, Seq: p.seq, Parent: it.seq, Outcome: outcomes[i], Cost: p.cost,
			Bytes: p.bytes, Keys: p.keys, Died: died,
		})
	}
}

// withdraw withdraws the ith live item, or aborts it.
func (w *model) withdraw(i int, abort bool) {
	w.t.Helper()
	it, kind := w.order[i], control.Withdraw
	it.recall = true
	if abort {
		kind, it.aborted = control.Abort, true
	}
	w.step(control.Event{Kind: kind, Seq: it.seq})
}

// reply answers the ith unanswered Bisect or DeadLetter of the machine. For a Bisect, the item is
// cut into the given number of pieces; 0 means that it cannot be cut.
func (w *model) reply(i, pieces int) {
	w.t.Helper()
	a := w.asked[i]
	w.asked = slices.Delete(w.asked, i, i+1)
	if a.deadLetter {
		w.step(control.Event{Kind: control.DeadLettered, Seq: a.seq})
		return
	}
	if pieces < 2 {
		pieces = 0
	}
	w.step(control.Event{Kind: control.Cut, Seq: a.seq, Pieces: uint32(pieces)})
	w.pieces(w.items[a.seq], slices.Repeat([]control.Outcome{control.Retryable}, pieces))
}

// pass lets time pass, with a Tick at each Wake of the machine.
func (w *model) pass(d time.Duration) {
	w.t.Helper()
	end := w.now + d
	for range 100_000 {
		at, ok := w.m.Wake()
		if !ok || at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.step(control.Event{Kind: control.Tick})
		if next, ok := w.m.Wake(); ok && next <= w.now {
			w.fail("Wake is %v after a Tick at %v", next, w.now)
		}
	}
	w.fail("the machine does not stop asking for Ticks")
}

func (w *model) lane(num int32, up bool, limits control.Limits) {
	w.t.Helper()
	l := w.lanes[num]
	if l == nil {
		l = &modelLane{}
		w.lanes[num] = l
	}
	l.up = up
	if !up {
		w.step(control.Event{Kind: control.LaneDown, Lane: num})
		return
	}
	l.limits = limits
	w.strict = w.strict && !limits.Ordered
	w.step(control.Event{Kind: control.LaneUp, Lane: num, Limits: limits})
}

// drain delivers all items from now on, and fails if the machine does not settle all of them.
func (w *model) drain() {
	w.t.Helper()
	for range 10_000 {
		switch {
		case len(w.asked) > 0:
			w.reply(0, 0)
		case w.unsaved > 0:
			n := w.unsaved
			w.unsaved = 0
			w.step(control.Event{Kind: control.Saved, Bytes: n})
		case len(w.tries) > 0:
			w.answer(w.running()[0], control.Delivered, 0)
		case len(w.order) == 0:
			w.check()
			if s := w.m.Status(); s.Waiting != 0 || s.InFlight != 0 || s.ReplayBytes != 0 {
				w.fail("idle with status %+v", s)
			}
			return
		default:
			at, ok := w.m.Wake()
			if !ok {
				w.fail("%d items are live, nothing is in flight, and the machine wants no Tick: %+v",
					len(w.order), w.m.Status())
			}
			w.pass(max(0, at-w.now))
		}
	}
	w.fail("not drained after 10000 steps: %+v", w.m.Status())
}

// hold handles an answer at an Ordered lane. It records an item that was delivered while earlier
// attempts of the lane's run are unanswered. If one of these attempts fails, it removes the later
// items from the record.
func (w *model) hold(x *modelTry, l *modelLane, outcome control.Outcome) {
	if outcome == control.Delivered {
		if !l.failed || x.place < l.firstFailed {
			x.item.held = x
		}
		return
	}
	if !l.failed || x.place < l.firstFailed {
		l.failed, l.firstFailed = true, x.place
	}
	for _, it := range w.order {
		if h := it.held; h != nil && h.lane == x.lane && h.run == x.run && h.place > x.place {
			it.held = nil
		}
	}
}
