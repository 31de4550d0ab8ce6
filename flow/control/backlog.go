//penstock:pure

package control

import (
	"container/heap"
	"slices"
	"time"
)

// backlog holds the items that have not settled (are neither delivered, dead-lettered nor
// withdrawn), and the queues in which they wait.
type backlog struct {
	*env
	lanes *lanes

	items          sequence
	fresh          queue
	retry          queue // items that were sent before and wait for a lane
	retryWithToken queue // likewise, but their next attempt takes a token of the budget
	delayed        delays
	suspects       suspects
	retrying       retrying
	budget         budget
	// number of new items started since the machine last had room while the source had no item
	consecutiveNew int

	keys      map[uint32]*keyState
	keyed     int // items with keys
	blocking  int // items with keys that failed or are overdue: later items wait behind them
	freeItems []*item
	freeKeys  []*keyState
}

func newBacklog(e *env, l *lanes) *backlog {
	return &backlog{
		env: e, lanes: l,
		keys:     make(map[uint32]*keyState),
		retrying: retrying{deferred: deferring{asked: make(map[uint64]*item)}},
		budget:   newBudget(e.cfg.Budget),
	}
}

// queue is a part of the send buffer: items in the state inFresh or inRetry.
//
// Items with the same key start in order. An item is blocked while it must wait for an earlier item
// of one of its keys. A blocked item is not in ready, and is not checked again until it is
// unblocked. Only four events unblock an item:
//
//   - the previous item of one of its keys starts at an Ordered lane (countInFlight),
//   - the previous item of one of its keys settles or is replaced by pieces (unlink),
//   - it is the oldest item of a key, and no item of this key is in flight any more
//     (countInFlight),
//   - a lane comes up again, at which items of its keys may still be in flight (unblockAll).
//
// So the answer to an item only checks the next items of its keys, however many are waiting.
type queue struct {
	ready   buffer // items that may be next in the order of their keys
	blocked amount // blocked items
}

func (q *queue) len() int     { return q.ready.len() + q.blocked.n }
func (q *queue) add(it *item) { q.ready.add(it) }

func (q *queue) remove(it *item) {
	if it.blocked {
		it.blocked = false
		q.blocked.remove(it)
		return
	}
	q.ready.remove(it)
}

// block moves the ith ready item to the blocked items, because the order of its keys does not allow
// it to start.
func (q *queue) block(i int) {
	it := q.ready.at(i)
	it.blocked = true
	q.ready.removeAt(i)
	q.blocked.add(it)
}

// queueOf returns the queue of an item that waits for a lane. Items that must take a token of the
// budget have a queue of their own.
func (b *backlog) queueOf(it *item) *queue {
	switch {
	case it.state == inFresh:
		return &b.fresh
	case it.needsToken:
		return &b.retryWithToken
	}
	return &b.retry
}

// waitForLane puts the item into the queue of items that wait for their next attempt.
func (b *backlog) waitForLane(it *item) {
	it.state = inRetry
	b.queueOf(it).add(it)
	b.retrying.add(it)
}

// unblock moves a blocked item back to the ready items, as its turn may have come.
func (b *backlog) unblock(it *item) {
	if !it.blocked {
		return
	}
	q := b.queueOf(it)
	it.blocked = false
	q.blocked.remove(it)
	q.ready.add(it)
}

// repeats returns the number of ready items that were sent before.
func (b *backlog) repeats() int { return b.retry.ready.len() + b.retryWithToken.ready.len() }

// unblockAll unblocks all items.
func (b *backlog) unblockAll() {
	for it := b.items.oldest; it != nil; it = it.next {
		b.unblock(it)
	}
}

// buffer is a sorted queue of items. Adding at the end and removing at index 0 take O(1). At other
// indexes, adding or removing moves the pointers on one side of the index, usually the shorter one.
type buffer struct {
	s    []*item
	head int
}

func (b *buffer) len() int       { return len(b.s) - b.head }
func (b *buffer) at(i int) *item { return b.s[b.head+i] }

// find returns the index of the item, or the index at which to insert it.
func (b *buffer) find(it *item) int {
	i, _ := slices.BinarySearchFunc(b.s[b.head:], it, func(x, y *item) int {
		return x.rank.compare(&y.rank)
	})
	return i
}

func (b *buffer) add(it *item) {
	n := b.len()
	if n == 0 || b.at(n-1).rank.less(&it.rank) {
		if b.head > 0 && len(b.s) == cap(b.s) {
			copy(b.s, b.s[b.head:])
			clear(b.s[n:])
			b.s, b.head = b.s[:n], 0
		}
		b.s = append(b.s, it)
		return
	}
	i := b.find(it)
	if b.head == 0 || i > n/2 {
		b.s = slices.Insert(b.s, b.head+i, it)
		return
	}
	b.head--
	copy(b.s[b.head:], b.s[b.head+1:b.head+1+i])
	b.s[b.head+i] = it
}

func (b *buffer) removeAt(i int) {
	if i > b.len()/2 {
		b.s = slices.Delete(b.s, b.head+i, b.head+i+1)
		return
	}
	copy(b.s[b.head+1:], b.s[b.head:b.head+i])
	b.s[b.head] = nil
	if b.head++; b.head == len(b.s) {
		b.s, b.head = b.s[:0], 0
	}
}

func (b *buffer) remove(it *item) {
	if i := b.find(it); i < b.len() && b.at(i) == it {
		b.removeAt(i)
	}
}

// requeueAnswered returns the item to the queues of waiting items (the send buffer) after an
// attempt that did not deliver it. The parameter failed is the lane to avoid, or nil.
func (b *backlog) requeueAnswered(it *item, failed *lane) {
	switch it.state {
	case inSuspects, inDelay: // the item waits since the attempt was overdue
		if failed != nil {
			b.restartWait(it, failed)
		}
		return
	case inRetry:
		if failed != nil {
			it.waited = false
		}
		return
	case inFlight:
	default:
		return
	}
	if it.awaited() { // another attempt, such as a hedge, may still deliver the item in time
		if failed != nil {
			it.addTried(failed)
		}
		return
	}
	if it.keyed() && len(it.running) > 0 {
		return
	}
	it.interrupt()
	if it.decision == undecided {
		b.requeue(it, failed)
	}
}

// restartWait begins the wait of an item again, because its overdue attempt has now failed at l.
func (b *backlog) restartWait(it *item, l *lane) {
	b.leave(it)
	it.state = inFlight
	if it.account.suspect {
		b.requeue(it, l)
	} else {
		b.delay(it)
	}
}

// requeueOverdue returns an item to the send buffer because its attempt at l is overdue. It does
// nothing if the item has keys, is to be refused or withdrawn, or has another attempt that is not
// overdue.
func (b *backlog) requeueOverdue(it *item, l *lane) {
	if it.state == inFlight && !it.keyed() && it.decision == undecided && !it.awaited() {
		b.requeue(it, l)
	}
}

// requeue makes an item that was sent, or a piece of one, wait for its next attempt. The item waits
// for a lane, among the suspects, or for the time that Config.Retry demands. The caller has made
// sure that all running attempts of the item are overdue.
func (b *backlog) requeue(it *item, failed *lane) {
	if it.state != inFlight {
		return
	}
	if failed != nil {
		b.markBlocking(it)
		it.needsToken = true
		it.addTried(failed)
	}
	if it.account.suspect && (failed == nil || !failed.limits.Ordered) {
		due := b.now
		if failed != nil {
			due += b.retryWait(it)
		}
		b.waitAsSuspect(it, due)
		return
	}
	if failed != nil && b.retrying.deferred.waitsNow(b, it) {
		b.delay(it)
		return
	}
	b.waitForLane(it)
}

// delay makes the item wait according to Config.Retry.
func (b *backlog) delay(it *item) {
	it.due = b.now + b.retryWait(it)
	it.waited = true
	it.state = inDelay
	heap.Push(&b.delayed, it)
	b.retrying.add(it)
	b.retrying.deferred.addWait(b, it)
}

// retryWait draws the wait of an item before its next attempt.
func (b *backlog) retryWait(it *item) time.Duration { return b.draw(b.cfg.Retry, &it.retry) }
