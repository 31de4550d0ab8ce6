//penstock:pure

package control

import "slices"

// keyState holds the order of one key: its items in sequence, and the lane of the items in flight.
type keyState struct {
	key        uint32
	head, tail *keyNode
	inFlight   int   // items with an attempt in flight
	lane       *lane // lane of the items in flight
	// an item failed while others are in flight: no item starts until all have returned
	interrupted bool
}

// keyNode links an item into the list of the items with one of its keys.
type keyNode struct {
	item       *item
	state      *keyState
	prev, next *keyNode
}

// link inserts the item into the sequences of its keys.
func (b *backlog) link(it *item, keys []uint32) {
	it.nodes = slices.Grow(it.nodes[:0], len(keys))
	b.keyed++
	for i, k := range keys {
		if slices.Contains(keys[:i], k) {
			continue
		}
		s := b.keys[k]
		if s == nil {
			if n := len(b.freeKeys); n > 0 {
				s = b.freeKeys[n-1]
				b.freeKeys = b.freeKeys[:n-1]
			} else {
				s = &keyState{}
			}
			*s = keyState{key: k}
			b.keys[k] = s
		}
		it.nodes = append(it.nodes, keyNode{item: it, state: s})
		n := &it.nodes[len(it.nodes)-1]
		after := s.tail
		for after != nil && it.rank.less(&after.item.rank) {
			after = after.prev
		}
		n.prev = after
		if after != nil {
			n.next, after.next = after.next, n
		} else {
			n.next, s.head = s.head, n
		}
		if n.next != nil {
			n.next.prev = n
		} else {
			s.tail = n
		}
	}
}

// unlink removes the item from the sequences of its keys, and unblocks the items after it.
func (b *backlog) unlink(it *item) {
	if len(it.nodes) == 0 {
		return
	}
	b.keyed--
	b.blocking -= one(it.blocking)
	it.blocking = false
	// A Split may replace the item by pieces while its attempt is still listed as running. The item
	// is then no longer in flight.
	if len(it.running) > 0 {
		b.countInFlight(it, it.running[0].lane, -1)
	}
	for i := range it.nodes {
		n := &it.nodes[i]
		s := n.state
		if n.next != nil {
			b.unblock(n.next.item)
		}
		if n.prev != nil {
			n.prev.next = n.next
		} else {
			s.head = n.next
		}
		if n.next != nil {
			n.next.prev = n.prev
		} else {
			s.tail = n.prev
		}
		if s.head == nil && s.inFlight == 0 {
			delete(b.keys, s.key)
			b.freeKeys = append(b.freeKeys, s)
		}
	}
	clear(it.nodes)
	it.nodes = it.nodes[:0]
}

// markBlocking notes that the item has failed or is overdue. Later items of its keys may then wait
// long, see blockedByFailed.
func (b *backlog) markBlocking(it *item) {
	if it.keyed() && !it.blocking {
		it.blocking = true
		b.blocking++
	}
}

// blockedByFailed returns the amount of all new items that are blocked by the order of their keys.
// It returns 0 if no item with keys has failed or is overdue (see markBlocking). These new items
// count against Config.Waiting instead of Config.Ahead, so that the machine still requests items of
// other keys.
func (b *backlog) blockedByFailed() (a amount) {
	if b.blocking > 0 {
		a = b.fresh.blocked
	}
	return a
}

// countInFlight counts the item as in flight at l (delta 1), or no longer (delta -1). An item with
// keys has at most one running attempt.
func (b *backlog) countInFlight(it *item, l *lane, delta int) {
	for i := range it.nodes {
		n := &it.nodes[i]
		s := n.state
		s.inFlight += delta
		s.lane = l
		switch {
		case s.inFlight == 0:
			s.lane, s.interrupted = nil, false
			b.unblock(s.head.item)
		case delta > 0 && l.limits.Ordered && n.next != nil:
			b.unblock(n.next.item) // the next item may follow at l
		}
	}
}

// interrupt is called when an attempt of the item has failed, or when the item is refused or
// withdrawn. Further items with a key of this item then do not start until the items of that key
// that are in flight have returned.
func (it *item) interrupt() {
	for i := range it.nodes {
		if s := it.nodes[i].state; s.inFlight > 0 {
			s.interrupted = true
		}
	}
}

// mayStart reports whether the order of its keys allows the item to start now. It returns the only
// permitted lane, or nil for any lane.
func (it *item) mayStart() (only *lane, ok bool) {
	for i := range it.nodes {
		n := &it.nodes[i]
		s := n.state
		if n.prev != nil && (n.prev.item.state != inFlight || n.prev.item.decision != undecided) {
			return nil, false
		}
		if s.inFlight == 0 {
			if n.prev != nil {
				return nil, false
			}
			continue
		}
		l := s.lane
		mayFollow := n.prev != nil && l.limits.Ordered && l.isUp() && !l.run.broken && !s.interrupted
		if !mayFollow || only != nil && only != l {
			return nil, false
		}
		only = l
	}
	return only, true
}
