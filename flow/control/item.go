//penstock:pure

package control

import (
	"cmp"
	"container/heap"
	"math/bits"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// itemState is the state of an item.
type itemState uint8

const (
	isFree     itemState = iota
	inFresh              // waits, never sent
	inRetry              // waits for its next attempt
	inDelay              // waits until due
	inSuspects           // waits until due among the suspects
	inFlight             // waits only for the end of its attempts
	isPending            // is being cut or dead-lettered, or receives its pieces
	isDone               // settled, or replaced by its pieces; attempts may still run
)

// decision is the fate of an item after its running attempts: it takes effect when none of them
// runs any more.
//
//	undecided --reject--> refused --retryPiece--> undecided
//	undecided, refused --withdraw--> withdrawn
type decision uint8

const (
	undecided decision = iota // it is sent again
	refused                   // it is cut or dead-lettered
	withdrawn                 // it settles undelivered
)

// item is one item from its Offer or Piece event until it has settled (or is deferred) and none of
// its attempts runs. The memory of items is reused. In comments of this package, "the item" is
// usually the argument named it.
type item struct {
	seq   uint64
	rank  rank
	cost  float64
	bytes int64
	hash  uint64
	past

	// The fields below are nil or empty in a free item.
	nodes      []keyNode  // one for each of its keys
	prev, next *item      // in sequence, while it has not settled
	running    []*attempt // not yet concluded
	firstOf    *lane      // Ordered lane that must begin its next run with this item
	// attempt with the Split that replaces this item by pieces, until the attempt is concluded
	by *attempt

	tried    []int32 // lanes that failed it
	failures []failure
}

// past is the history of an item so far. It holds no pointers, so that clearing it is cheap.
type past struct {
	state       itemState
	counted     bool // in replay.started: sent at least once, so that a crash may repeat it
	blocked     bool // see queue
	blocking    bool // counted in backlog.blocking
	decision    decision
	poison      bool   // refused because of its account
	waited      bool   // has waited, so that a lane that failed it may get its next attempt
	needsToken  bool   // its next attempt takes a token of the budget
	awaitsToken bool   // has waited for that token
	number      uint32 // attempts so far
	account     account
	cut         division

	heldUntil time.Duration // end of its hold; 0: not held yet

	due       time.Duration
	heapIndex int // in the heap in which it waits
	retry     backoff.State
}

// division describes how an item is replaced by pieces, or how a piece settles. If an attempt
// returned a Split, byID and byLane identify this attempt.
type division struct {
	total, left uint32 // number of pieces, and of pieces still to come
	byLane      int32
	byID        uint64
}

// begin sets the number of pieces to come.
func (d *division) begin(pieces uint32) { d.total, d.left = pieces, pieces }

// rank orders items by their place in the sequence of Offers. Pieces divide the place of their
// parent among themselves.
type rank struct {
	root       uint64 // Seq of the item that was offered
	low, width uint64 // part of the root's place; width 0 stands for 2^64
	seq        uint64 // breaks ties when repeated cuts have used up the width
}

func (r *rank) compare(o *rank) int {
	return cmp.Or(cmp.Compare(r.root, o.root), cmp.Compare(r.low, o.low), cmp.Compare(r.seq, o.seq))
}

func (r *rank) less(o *rank) bool { return r.compare(o) < 0 }

// piece returns the rank of the ith of n pieces of r.
func (r *rank) piece(i, n uint32, seq uint64) rank {
	p := rank{root: r.root, seq: seq}
	if r.width == 0 {
		p.width, _ = bits.Div64(1, 0, max(2, uint64(n)))
	} else {
		p.width = max(1, r.width/uint64(max(1, n)))
	}
	p.low = r.low + uint64(i)*p.width
	return p
}

// itemRef refers to an item. Since the memory of items is reused, it may be another item by now. It
// is still the same item if its seq equals seq.
type itemRef struct {
	item *item
	seq  uint64
}

func (it *item) ref() itemRef { return itemRef{it, it.seq} }

// isActive reports whether r still refers to its item, and the item is active.
func (r itemRef) isActive() bool { return r.item.seq == r.seq && r.item.isActive() }

// isActive reports whether the item has not settled, and is not being cut or dead-lettered.
func (it *item) isActive() bool {
	return it.state != isFree && it.state != isDone && it.state != isPending
}

func (it *item) keyed() bool { return len(it.nodes) > 0 }

// isolated reports whether the item may go to any free lane: it has no keys, no lane has failed it
// or runs it, and no Ordered lane waits for it.
func (it *item) isolated() bool {
	return len(it.nodes) == 0 && len(it.tried) == 0 && len(it.running) == 0 && it.firstOf == nil
}

// runsAt reports whether an attempt of the item at l is not concluded.
func (it *item) runsAt(l *lane) bool {
	return slices.ContainsFunc(it.running, func(a *attempt) bool { return a.lane == l })
}

func (it *item) failedAt(l *lane) bool { return slices.Contains(it.tried, l.num) }

// addTried adds l to the lanes that failed the item.
func (it *item) addTried(l *lane) {
	if !it.failedAt(l) {
		it.tried = append(it.tried, l.num)
	}
}

// awaited reports whether the item has a running attempt that is not overdue.
func (it *item) awaited() bool {
	return slices.ContainsFunc(it.running, func(a *attempt) bool { return !a.overdue })
}

func (it *item) drop(a *attempt) {
	if len(it.running) == 1 && it.running[0] == a {
		it.running = it.running[:0]
		return
	}
	if i := slices.Index(it.running, a); i >= 0 {
		it.running = slices.Delete(it.running, i, i+1)
	}
}

// maxCost bounds the cost of an item, to keep sums of costs finite.
const maxCost = 1e12

// newItem returns a new item, which it adds to the sequence before next, or at the end if next is
// nil.
func (b *backlog) newItem(seq uint64, r rank, next *item, e *Event) *item {
	var it *item
	if n := len(b.freeItems); n > 0 {
		it = b.freeItems[n-1]
		b.freeItems = b.freeItems[:n-1]
		it.past, it.tried, it.failures = past{}, it.tried[:0], it.failures[:0]
	} else {
		it = &item{}
	}
	it.seq, it.rank, it.hash, it.bytes = seq, r, seq, max(0, e.Bytes)
	if it.cost = min(e.Cost, maxCost); !(it.cost > 0) { // also if it is not a number
		it.cost = 1
	}
	b.items.add(it, next)
	if len(e.Keys) > 0 {
		it.hash = uint64(e.Keys[0]) | 1<<63
		b.link(it, e.Keys)
	}
	return it
}

// finish removes an item from its queue and from the sequence of all items. The item has settled,
// was replaced by its pieces, or is kept by the owner of the machine until its retry is due.
func (b *backlog) finish(it *item) {
	b.leave(it)
	it.state = isDone
	b.items.remove(it)
	if it.account.suspect {
		b.suspects.unsettled--
	}
	b.unlink(it)
	b.release(it)
}

// release frees a finished item if none of its attempts runs.
func (b *backlog) release(it *item) {
	if it.state == isDone && len(it.running) == 0 {
		it.by, it.state = nil, isFree
		b.freeItems = append(b.freeItems, it)
	}
}

// leave removes the item from the queue in which it waits, if it waits. An Ordered lane that was to
// begin its next run with the item no longer waits for it.
func (b *backlog) leave(it *item) {
	switch it.state {
	case inFresh:
		b.fresh.remove(it)
	case inRetry:
		b.queueOf(it).remove(it)
	case inDelay:
		heap.Remove(&b.delayed, it.heapIndex)
	case inSuspects:
		b.suspects.remove(it)
	}
	b.retrying.remove(it)
	b.lanes.clearFirst(it)
}
