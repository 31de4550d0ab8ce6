package flow

// attemptTable is the set of attempts that have not returned.
type attemptTable[T any] struct {
	byID map[uint64]*attempt[T]
	// first and last are the ends of a list of the attempts with a live context, in the order of
	// their start. Since every attempt has the same time limit, this is also the order in which
	// they are abandoned.
	first, last *attempt[T]
	free        []*attempt[T]
}

// maxFreeAttempts bounds the attempts that are kept for reuse.
const maxFreeAttempts = 1024

func (f *attemptTable[T]) add(a *attempt[T]) {
	f.byID[a.ID] = a
	a.prev = f.last
	if f.last != nil {
		f.last.next = a
	} else {
		f.first = a
	}
	f.last = a
}

func (f *attemptTable[T]) unlink(a *attempt[T]) {
	if a.prev != nil {
		a.prev.next = a.next
	} else if f.first == a {
		f.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else if f.last == a {
		f.last = a.prev
	}
	a.prev, a.next = nil, nil
}

// cancel ends the context of an attempt that has not returned. Only the first cause counts.
func (f *attemptTable[T]) cancel(a *attempt[T], cause error) {
	if a.ended == nil {
		f.unlink(a)
		a.ended = cause
		a.cancel(cause)
	}
}

// remove removes an attempt that has returned.
func (f *attemptTable[T]) remove(a *attempt[T]) {
	delete(f.byID, a.ID)
	if a.ended == nil {
		f.unlink(a)
	}
}

// newAttempt returns an empty attempt, reusing memory if there is any.
func (f *attemptTable[T]) newAttempt() *attempt[T] {
	n := len(f.free)
	if n == 0 {
		return &attempt[T]{}
	}
	a := f.free[n-1]
	f.free = f.free[:n-1]
	return a
}

// reuse keeps the memory of attempt a for newAttempt.
func (f *attemptTable[T]) reuse(a *attempt[T]) {
	if len(f.free) < maxFreeAttempts {
		*a = attempt[T]{}
		f.free = append(f.free, a)
	}
}
