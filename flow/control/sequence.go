//penstock:pure

package control

// sequence is a list of the items that have not settled, in their order.
type sequence struct {
	n              int
	oldest, newest *item
}

// add inserts the item before next, or at the end if next is nil.
func (s *sequence) add(it, next *item) {
	s.n++
	it.next = next
	if next == nil {
		it.prev, s.newest = s.newest, it
	} else {
		it.prev, next.prev = next.prev, it
	}
	if it.prev != nil {
		it.prev.next = it
	} else {
		s.oldest = it
	}
}

// remove removes an item that has settled or was replaced.
func (s *sequence) remove(it *item) {
	s.n--
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		s.oldest = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		s.newest = it.prev
	}
	it.prev, it.next = nil, nil
}
