//penstock:pure

package waiting

import (
	"container/heap"
	"slices"
	"time"
)

// numClasses is the number of heaps. Each heap has one class of the ranges that wait for a retry.
// Class 0 has the ranges that are not suspects. A suspect is data that fails although its workers
// deliver other data (ADR 17). Class 1 has the suspects with at most 1 failure, class 2 those with
// 2, and so on. The last class has those with 15 or more.
const numClasses = 16

func classOf(e *entry) int {
	if !e.has(isSuspect) {
		return 0
	}
	return int(min(max(e.failures, 1), numClasses-1))
}

// dueHeap has the entry with the earliest due time first. Entries with the same due time are ordered
// by batch, partition and position, so that the ranges of one batch are removed one after another.
// To remove an entry that is not the first one, dueHeap must search for it. This is rare, because
// nearly all entries are removed when they are due. Its methods with upper-case names are those of
// heap.Interface.
type dueHeap struct {
	x *index
	s []uint32
}

func (h *dueHeap) Len() int      { return len(h.s) }
func (h *dueHeap) Swap(i, j int) { h.s[i], h.s[j] = h.s[j], h.s[i] }
func (h *dueHeap) Push(i any)    { h.s = append(h.s, i.(uint32)) }

func (h *dueHeap) Less(i, j int) bool {
	a, b := h.x.at(h.s[i]), h.x.at(h.s[j])
	if a.due != b.due {
		return a.due < b.due
	}
	if a.batch != b.batch {
		return a.batch < b.batch
	}
	if a.part != b.part {
		return a.part < b.part
	}
	return a.rangeOf().From.Compare(b.rangeOf().From) < 0
}

func (h *dueHeap) Pop() any {
	last := len(h.s) - 1
	i := h.s[last]
	h.s = h.s[:last]
	return i
}

func (h *dueHeap) remove(i uint32) {
	if k := slices.Index(h.s, i); k >= 0 {
		heap.Remove(h, k)
	}
}

// pick selects a class (heap), from which the next entry is taken. If suspect is not set, this is
// class 0. If suspect is set, it is one of the other classes. pick returns false if no such entry
// is due.
//
// Several classes of suspects may have a due entry. Usually pick returns the class with the
// earliest due time. If fewest is set, it returns the class with the fewest failures. The caller
// sets fewest for every second suspect, so that good data that is suspected by mistake is delivered
// soon.
func (x *index) pick(suspect, fewest bool, now time.Duration) (class int, ok bool) {
	from, to := 0, 1
	if suspect {
		from, to = 1, numClasses
	}
	for c := from; c < to; c++ {
		s := x.due[c].s
		if len(s) == 0 || x.at(s[0]).due > int64(now) || ok &&
			x.at(s[0]).due >= x.at(x.due[class].s[0]).due {
			continue
		}
		if class, ok = c, true; fewest {
			break
		}
	}
	return class, ok
}

// nextDue returns the earliest due time of the suspects if suspect is set, else that of all other
// entries. It returns false if there is no such entry.
func (x *index) nextDue(suspect bool) (at time.Duration, ok bool) {
	from, to := 0, 1
	if suspect {
		from, to = 1, numClasses
	}
	for c := from; c < to; c++ {
		if s := x.due[c].s; len(s) > 0 && (!ok || x.at(s[0]).due < int64(at)) {
			at, ok = time.Duration(x.at(s[0]).due), true
		}
	}
	return at, ok
}

// takeDue removes the entry that pick has selected from its heap. It then removes the next entries
// of the heap as long as they belong to the same batch and partition, and all removed entries have
// at most the given numbers of records and bytes. It returns the entry numbers of the removed
// entries.
func (x *index) takeDue(suspect, fewest bool, now time.Duration, records, bytes int64) []uint32 {
	class, ok := x.pick(suspect, fewest, now)
	if !ok {
		return nil
	}
	h := &x.due[class]
	first := *x.at(h.s[0])
	var out []uint32
	for len(h.s) > 0 {
		i := h.s[0]
		e := x.at(i)
		if len(out) > 0 &&
			(e.batch != first.batch || e.part != first.part || records < int64(e.records) ||
				bytes < int64(e.bytes)) {
			break
		}
		records -= int64(e.records)
		bytes -= int64(e.bytes)
		x.leave(i)
		out = append(out, i)
	}
	return out
}
