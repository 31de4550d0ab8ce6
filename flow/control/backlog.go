//penstock:pure

package control

import (
	"slices"
	"time"
)

// backlog holds the items that have not settled, and the queues in which they wait.
type backlog struct {
	*env
	lanes *lanes

	items    sequence
	fresh    queue
	redo     queue // and owing: they wait for a lane, not for the first time
	owing    queue
	delayed  heap[*item]
	apart    apart
	retrying retrying
	bucket   tokenBucket
	crowd    int // new items started since the source last had none, though the machine had room

	keys      map[uint32]*keyState
	keyed     int // items with keys
	holding   int // of those, the ones that failed or are overdue: later ones wait behind them
	freeItems []*item
	freeKeys  []*keyState
}

func newBacklog(e *env, l *lanes) *backlog {
	return &backlog{
		env: e, lanes: l,
		keys:   make(map[uint32]*keyState),
		bucket: tokenBucket{Budget: e.cfg.Budget, tokens: e.cfg.Budget.Burst},
	}
}

// queue is a part of the send buffer: the items in one state, inFresh or inRedo.
//
// An item found to be out of turn in the order of its keys is blocked: it is in no buffer, and is
// not checked again until its obstacle has changed. Only three events can unblock items, and each
// unblocks the affected ones in a step of its own:
//
//   - the previous item of one of its keys starts at an Ordered lane or leaves (flies, unlink),
//   - no item of a key is in flight any more (flies),
//   - a lane with items of a key in flight comes up again (laneUp).
//
// So an answer checks few items for each of its keys, however many are waiting.
type queue struct {
	able    buffer // items that may be next in the order of their keys
	blocked amount // the others
}

func (q *queue) len() int     { return q.able.len() + q.blocked.n }
func (q *queue) add(it *item) { q.able.add(it) }

func (q *queue) remove(it *item) {
	if it.blocked {
		it.blocked = false
		q.blocked.remove(it)
		return
	}
	q.able.remove(it)
}

// block removes the ith able item, which is out of turn, until it is unblocked.
func (q *queue) block(i int) {
	it := q.able.at(i)
	it.blocked = true
	q.able.removeAt(i)
	q.blocked.add(it)
}

// queueOf returns the queue of one that waits for a lane. Items that take a token of the budget
// have a queue of their own.
func (b *backlog) queueOf(it *item) *queue {
	switch {
	case it.state == inFresh:
		return &b.fresh
	case it.charged:
		return &b.owing
	}
	return &b.redo
}

// waitForLane puts it into the queue of those that wait for their next attempt.
func (b *backlog) waitForLane(it *item) {
	it.state = inRedo
	b.queueOf(it).add(it)
	b.retrying.add(it)
}

// unblock has it looked at again, as its turn may have come.
func (b *backlog) unblock(it *item) {
	if !it.blocked {
		return
	}
	q := b.queueOf(it)
	it.blocked = false
	q.blocked.remove(it)
	q.able.add(it)
}

// repeats returns the number of items sent before that may be next in the order of their keys.
func (b *backlog) repeats() int { return b.redo.able.len() + b.owing.able.len() }

// unblockAll has all items looked at again.
func (b *backlog) unblockAll() {
	blocked := func() int { return b.fresh.blocked.n + b.redo.blocked.n + b.owing.blocked.n }
	for it := b.items.oldest; it != nil && blocked() > 0; it = it.next {
		b.unblock(it)
	}
}

// buffer is a sorted queue of items. Taking from the front and adding at the end cost nothing; the
// rest is a binary search and a move of pointers, on the shorter side of the place.
type buffer struct {
	s    []*item
	head int
}

func (b *buffer) len() int       { return len(b.s) - b.head }
func (b *buffer) at(i int) *item { return b.s[b.head+i] }

// find returns the index at which it stands or would stand.
func (b *buffer) find(it *item) int {
	i, _ := slices.BinarySearchFunc(b.s[b.head:], it, func(x, y *item) int {
		switch {
		case x.rank.less(&y.rank):
			return -1
		case y.rank.less(&x.rank):
			return 1
		}
		return 0
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

// put returns it to the send buffer after an attempt that did not deliver it, if nothing else of it
// is awaited. failed is the lane that it should keep away from; nil: none.
func (b *backlog) put(it *item, failed *lane) {
	if failed != nil && it.state == inFlight && it.awaited() && !it.failedAt(failed) {
		it.tried = append(it.tried, failed.num) // a twin is out
	}
	// a late failure: the wait begins now
	if failed != nil && (it.state == inApart || it.state == inDelay) {
		b.leave(it)
		it.state = inFlight
		if it.account.suspect {
			b.again(it, failed)
		} else {
			b.delay(it)
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
	b.again(it, failed)
}

// again puts it into the send buffer.
func (b *backlog) again(it *item, failed *lane) {
	if it.state != inFlight {
		return
	}
	if failed != nil {
		b.hold(it)
		it.charged = true
		if !it.failedAt(failed) {
			it.tried = append(it.tried, failed.num)
		}
	}
	if it.account.suspect && (failed == nil || !failed.limits.Ordered) {
		due := b.now
		if failed != nil {
			due += b.retryWait(it)
		}
		b.setApart(it, due)
		return
	}
	if failed != nil && b.retrying.away.waitsNow(b, it) {
		b.delay(it)
		return
	}
	b.waitForLane(it)
}

// requeue puts it into the send buffer, as its attempt at l is overdue, if nothing forbids it.
func (b *backlog) requeue(it *item, l *lane) {
	if it.state == inFlight && !it.keyed() && it.fate == undecided && !it.awaited() {
		b.again(it, l)
	}
}

// delay has it wait as Config.Retry says.
func (b *backlog) delay(it *item) {
	it.due = b.now + b.retryWait(it)
	it.waited = true
	it.state = inDelay
	b.delayed.push(it)
	b.retrying.add(it)
	b.retrying.away.note(b, it)
}

// retryWait draws how long it waits before its next attempt. A policy that gives up repeats its
// last wait.
func (b *backlog) retryWait(it *item) time.Duration {
	d, next, ok := b.cfg.Retry.Next(it.retry, b.src)
	if !ok {
		return max(it.retry.Prev, 0)
	}
	it.retry = next
	return max(d, 0)
}
