//penstock:pure

package waiting

import (
	"container/heap"
	"math"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// phase is the state of a waiting range. It states whether the sender has the data of the range in
// memory, or only the store knows the range.
type phase uint8

const (
	isFree  phase = iota
	isNoted       // the sender has the batch in memory
	isHeld        // only the store has the range
	isOut         // Next has returned the range to the sender
)

// entry is one waiting range of a partition. There may be a million entries, so an entry has only
// 88 bytes.
type entry struct {
	keys     string // keys of both ends of the range
	from, to int64
	due      int64 // due time in nanoseconds of the store's clock
	part     uint32
	batch    uint32 // the same for all ranges of a batch
	records  uint32
	bytes    uint32
	attempts uint32
	n, step  uint32 // fields of backoff.State, like prev and slept
	prev     uint32 // in milliseconds, like slept and elapsed
	slept    uint32
	elapsed  uint32
	failures uint16
	keyAt    uint16 // start of the second key in keys
	phase    phase
	flags    flags
}

// flags of an entry.
type flags uint8

const (
	isSuspect flags = 1 << iota
	isSaved         // the journal has the current state of the entry
	isHanded        // durable in the journal, so the checkpoint may count it as settled
	inHeap
)

func (e *entry) has(f flags) bool { return e.flags&f != 0 }

func (e *entry) set(f flags, on bool) {
	if e.flags &^= f; on {
		e.flags |= f
	}
}

func (e *entry) rangeOf() stream.Range {
	return stream.Range{
		From: stream.Position{Num: e.from, Key: e.keys[:e.keyAt]},
		To:   stream.Position{Num: e.to, Key: e.keys[e.keyAt:]},
	}
}

func (e *entry) setRange(r stream.Range) {
	e.from, e.to, e.keys, e.keyAt = r.From.Num, r.To.Num, "", 0
	if r.From.Key != "" || r.To.Key != "" {
		e.keys, e.keyAt = r.From.Key+r.To.Key, uint16(len(r.From.Key))
	}
}

func (e *entry) history() flow.History {
	return flow.History{
		Attempts: e.attempts, Failures: uint32(e.failures), Suspect: e.has(isSuspect),
		Elapsed: long(e.elapsed),
		Retry:   backoff.State{N: e.n, Step: e.step, Prev: long(e.prev), Slept: long(e.slept)},
	}
}

func (e *entry) setHistory(h flow.History) {
	e.attempts, e.failures, e.elapsed = h.Attempts, uint16(min(h.Failures, math.MaxUint16)),
		short(h.Elapsed)
	e.n, e.step, e.prev, e.slept = h.Retry.N, h.Retry.Step, short(h.Retry.Prev),
		short(h.Retry.Slept)
	e.set(isSuspect, h.Suspect)
}

// short converts a duration to milliseconds. The maximum is 49 days.
func short(d time.Duration) uint32 {
	return uint32(min(max(d, 0)/time.Millisecond, math.MaxUint32))
}

func long(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

// partition has the waiting ranges of one partition.
type partition struct {
	part      stream.Partition
	order     order
	unwritten int // number of its removed ranges in index.settle, or in a save in progress
}

// slabSize is the number of entries that are allocated together.
const slabSize = 1024

// index finds the waiting ranges by their position in the source and by their due time.
type index struct {
	slabs  []*[slabSize]entry
	used   uint32 // number of entry numbers that were assigned
	free   []uint32
	parts  []*partition // by partition number; nil for a number that is not in use
	unused []uint32     // these numbers
	byID   map[string]uint32
	due    [numClasses]dueHeap
	held   totals
	all    totals
	dirty  []uint32 // entries that have changed since they were last written to the journal
	settle []done   // ranges that were removed since the last save
}

type done struct {
	part uint32
	r    stream.Range
}

// totals are sums over the entries.
type totals struct{ entries, records, bytes int64 }

func (t *totals) add(e *entry, sign int64) {
	t.entries += sign
	t.records += sign * int64(e.records)
	t.bytes += sign * int64(e.bytes)
}

func newIndex() *index {
	x := &index{byID: make(map[string]uint32)}
	for c := range x.due {
		x.due[c].x = x
	}
	return x
}

func (x *index) at(i uint32) *entry { return &x.slabs[i/slabSize][i%slabSize] }

func (x *index) alloc() uint32 {
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i
	}
	if int(x.used) == len(x.slabs)*slabSize {
		x.slabs = append(x.slabs, new([slabSize]entry))
	}
	x.used++
	return x.used - 1
}

func (x *index) partition(part stream.Partition) uint32 {
	n, ok := x.byID[part.ID]
	if !ok {
		n = uint32(len(x.parts))
		if last := len(x.unused) - 1; last >= 0 {
			n, x.unused = x.unused[last], x.unused[:last]
		} else {
			x.parts = append(x.parts, nil)
		}
		x.parts[n] = &partition{part: part}
		x.byID[part.ID] = n
	}
	if part.Name != "" {
		x.parts[n].part.Name = part.Name
	}
	return n
}

// release deletes partition n if no range of it waits, and no removed range has to be written to
// the journal. Its number may then be assigned to another partition. release reports whether it has
// deleted the partition.
func (x *index) release(n uint32) bool {
	p := x.parts[n]
	if p == nil || p.order.n > 0 || p.unwritten > 0 {
		return false
	}
	delete(x.byID, p.part.ID)
	x.parts[n] = nil
	x.unused = append(x.unused, n)
	return true
}

// settled notes that the range r of partition n was removed, so that it is written to the journal.
func (x *index) settled(n uint32, r stream.Range) {
	x.parts[n].unwritten++
	x.settle = append(x.settle, done{n, r})
}

// put adds a waiting range of partition n and returns the number of its entry. If the range
// overlaps other waiting ranges, it replaces the common parts.
func (x *index) put(n uint32, r stream.Range, records, bytes, batch uint32, due time.Duration,
	h flow.History, ph phase) uint32 {
	p := x.parts[n]
	i, exact := x.exact(p, r)
	if !exact {
		handed := x.cutOut(n, r, int64(records), false)
		i = x.alloc()
		e := x.at(i)
		*e = entry{part: n, phase: isNoted}
		e.setRange(r)
		e.set(isHanded, handed)
		p.order.insert(x, i)
		x.all.entries++
	} else {
		x.leave(i)
		e := x.at(i)
		x.all.records -= int64(e.records)
		x.all.bytes -= int64(e.bytes)
	}
	e := x.at(i)
	e.records, e.bytes, e.batch, e.due = records, bytes, batch, int64(due)
	e.setHistory(h)
	e.set(isSaved, false)
	x.all.records += int64(records)
	x.all.bytes += int64(bytes)
	e.phase = isNoted
	if ph == isHeld {
		x.hold(i)
	}
	return i
}

// hold notes that the sender has released the data of an entry, so only the store has the range.
// The entry gets the phase isHeld and is put into the heap of its class (see numClasses).
func (x *index) hold(i uint32) {
	e := x.at(i)
	if e.phase == isHeld {
		return
	}
	e.phase = isHeld
	x.held.add(e, 1)
	if !e.has(inHeap) {
		e.set(inHeap, true)
		heap.Push(&x.due[classOf(e)], i)
	}
}

// leave removes an entry from its heap, because the entry is returned to the sender, changed or
// deleted. If only the store had the range (isHeld), the range then counts as returned (isOut).
func (x *index) leave(i uint32) {
	e := x.at(i)
	if e.phase == isHeld {
		x.held.add(e, -1)
		e.phase = isOut
	}
	if e.has(inHeap) {
		x.due[classOf(e)].remove(i)
		e.set(inHeap, false)
	}
}

// exact returns the entry of p that has exactly the range r, and false if there is none.
func (x *index) exact(p *partition, r stream.Range) (uint32, bool) {
	i, ok := p.order.get(p.order.seek(x, r.From))
	return i, ok && x.at(i).rangeOf() == r
}

// kill deletes the entry with number i.
func (x *index) kill(i uint32) {
	e := x.at(i)
	x.leave(i)
	x.all.add(e, -1)
	x.parts[e.part].order.remove(x, i)
	*e = entry{}
	x.free = append(x.free, i)
}

// cutOut removes the range r from all entries that overlap it. If only a part of an entry is
// removed, the rest keeps the state of the entry. Example: without (20, 30], the entry (10, 50]
// becomes (10, 20] and (30, 50]. handed reports whether any of these entries was durable in the
// journal (isHanded). If settled is set, the removal is also written to the journal.
func (x *index) cutOut(n uint32, r stream.Range, records int64, settled bool) (handed bool) {
	p := x.parts[n]
	if p.order.n == 0 {
		return false
	}
	var hit []uint32
	c := p.order.seek(x, r.From)
	for i, ok := p.order.get(c); ok; i, ok = p.order.get(c) {
		if x.at(i).rangeOf().From.Compare(r.To) >= 0 {
			break
		}
		hit = append(hit, i)
		p.order.next(&c)
	}
	for _, i := range hit {
		handed = x.cutOne(i, r, records) || handed
	}
	if len(hit) > 0 && settled {
		x.settled(n, r)
	}
	return handed
}

func (x *index) cutOne(i uint32, r stream.Range, records int64) (handed bool) {
	old := *x.at(i)
	own := old.rangeOf()
	x.kill(i)
	handed = old.has(isHanded)
	left, right := own, own
	left.To, right.From = r.From, r.To
	for _, rest := range []stream.Range{left, right} {
		if rest.From.Compare(rest.To) >= 0 {
			continue
		}
		e := old
		e.setRange(rest)
		share := max(1, int64(old.records)-records)
		i := x.put(old.part, rest, uint32(share), max(1, old.bytes/2), old.batch,
			time.Duration(old.due), old.history(), isNoted)
		x.at(i).set(isHanded, handed)
		x.dirty = append(x.dirty, i)
		if old.phase == isHeld {
			x.hold(i)
		} else {
			x.at(i).phase = old.phase
		}
		records = int64(old.records) // only the first rest counts the records; the second has 1
	}
	return handed
}

// first returns the start of the first waiting range of a partition. It returns false if there is
// none.
func (x *index) first(id string) (at stream.Position, ok bool) {
	n, known := x.byID[id]
	if !known {
		return at, false
	}
	i, ok := x.parts[n].order.get(cursor{})
	if ok {
		at = x.at(i).rangeOf().From
	}
	return at, ok
}

// ranges returns the waiting ranges of a partition in ascending order.
func (x *index) ranges(id string) []stream.Range {
	n, known := x.byID[id]
	if !known || x.parts[n].order.n == 0 {
		return nil
	}
	out := make([]stream.Range, 0, x.parts[n].order.n)
	for i := range x.parts[n].order.all {
		out = append(out, x.at(i).rangeOf())
	}
	return out
}
