//penstock:pure

package control

import "slices"

// queue is a part of the send buffer: the items in one state, inFresh or inRedo.
//
// An item whose turn was seen not to have come is blocked: it is in no buffer, and nobody looks at
// it until what it waits for has changed. Only three things can let its turn come, and each of them
// unblocks whom it may concern, in a step of its own: the item before it, of one of its keys,
// starts at an Ordered lane or goes (flies, unlink); nothing of a key is in flight any more
// (flies); a lane that still has some of a key in flight comes up again (laneUp). So an answer
// looks at few items for each of its keys, however many wait behind them.
type queue struct {
	able    buffer // those whose turn may have come
	blocked int    // how many others there are
}

func (q *queue) len() int     { return q.able.len() + q.blocked }
func (q *queue) add(it *item) { q.able.add(it) }

func (q *queue) remove(it *item) {
	if it.blocked {
		it.blocked = false
		q.blocked--
		return
	}
	q.able.remove(it)
}

// block takes the ith of the able, whose turn has not come, out until it is unblocked.
func (q *queue) block(i int) {
	q.able.at(i).blocked = true
	q.able.removeAt(i)
	q.blocked++
}

// queueOf returns the queue of one that waits for a lane. Items that take a token of the budget
// have a queue of their own.
func (m *Machine) queueOf(it *item) *queue {
	switch {
	case it.state == inFresh:
		return &m.fresh
	case it.charged:
		return &m.owing
	}
	return &m.redo
}

// waitForLane puts it into the queue of those that wait for their next attempt.
func (m *Machine) waitForLane(it *item) {
	it.state = inRedo
	m.queueOf(it).add(it)
	m.retrying.add(it)
}

// unblock has it looked at again, as its turn may have come.
func (m *Machine) unblock(it *item) {
	if !it.blocked {
		return
	}
	q := m.queueOf(it)
	it.blocked = false
	q.blocked--
	q.able.add(it)
}

// unblockAll has all items looked at again.
func (m *Machine) unblockAll() {
	for it := m.items.oldest; it != nil && m.fresh.blocked+m.redo.blocked+m.owing.blocked > 0; it = it.next {
		m.unblock(it)
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
