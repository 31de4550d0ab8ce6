//penstock:pure

package control

import (
	"math/bits"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// itemState is where an item is.
type itemState uint8

const (
	isFree   itemState = iota
	inFresh            // waits, never sent
	inRedo             // waits for its next attempt
	inDelay            // waits until due
	inApart            // waits until due among the suspects
	inFlight           // an attempt runs, and nothing else is to be done
	inHands            // is being cut or buried, or its pieces come in
	isDone             // settled, or replaced by its pieces; attempts may still run
)

// fate tells how an item ends when no attempt of it runs.
//
//	undecided --reject--> refused --acquit--> undecided
//	undecided, refused --withdraw--> withdrawn
type fate uint8

const (
	undecided fate = iota // it is sent again
	refused               // it is cut or buried
	withdrawn             // it settles undelivered
)

// item is one item from Offer or Piece until it has settled and no attempt of it runs. Items are
// reused.
type item struct {
	seq   uint64
	rank  rank
	cost  float64
	bytes int64
	hash  uint64
	past

	// Nil or empty in one that is free.
	nodes      []keyNode  // one for each of its keys
	prev, next *item      // in sequence, while it has not settled
	running    []*attempt // not yet concluded
	firstOf    *lane      // Ordered lane that must begin its next run with it
	// the attempt with the answer that split it; for a piece: the attempt that settles it when
	// concluded
	by *attempt

	tried    []int32 // lanes that failed it
	failures []failure
}

// past is the history of an item so far. It holds no pointers, so that clearing it is cheap.
type past struct {
	state   itemState
	counted bool // in replay.started: sent at least once, so that a crash may repeat it
	blocked bool // see queue
	holds   bool // in backlog.holding
	fate    fate
	poison  bool   // because of its account
	waited  bool   // it has waited before an attempt at a lane that failed it
	charged bool   // its next attempt takes a token of the budget
	short   bool   // and there was none
	number  uint32 // attempts so far
	account account
	cut     division

	heldTill time.Duration // it is not held any longer; 0: it was not yet

	due   time.Duration
	at    int // index in the delay heap
	retry backoff.State
}

// division is how an item is replaced by pieces, or a piece settled: by the answer of an attempt,
// if byID is not 0.
type division struct {
	total, left uint32 // pieces; those still to come
	byLane      int32
	byID        uint64
}

// begin has so many pieces come.
func (d *division) begin(pieces uint32) { d.total, d.left = pieces, pieces }

// rank orders items by their place in the sequence of Offers; pieces share out the place of their
// parent.
type rank struct {
	root       uint64 // Seq of the item that was offered
	low, width uint64 // its part of the root's place; width 0 stands for 2^64
	seq        uint64 // where depth has used up the width
}

func (r *rank) less(o *rank) bool {
	if r.root != o.root {
		return r.root < o.root
	}
	if r.low != o.low {
		return r.low < o.low
	}
	return r.seq < o.seq
}

// piece is the place of the ith of n pieces of r.
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

func (it *item) keyed() bool { return len(it.nodes) > 0 }

// isolated says that it may go to any free lane.
func (it *item) isolated() bool {
	return len(it.nodes) == 0 && len(it.tried) == 0 && len(it.running) == 0 && it.firstOf == nil
}

// runsAt reports whether an attempt of it has not returned from l.
func (it *item) runsAt(l *lane) bool {
	for _, a := range it.running {
		if a.lane == l {
			return true
		}
	}
	return false
}

func (it *item) failedAt(l *lane) bool { return slices.Contains(it.tried, l.num) }

// awaited reports whether an attempt of it runs that is not overdue.
func (it *item) awaited() bool {
	for _, a := range it.running {
		if !a.overdue {
			return true
		}
	}
	return false
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

// maxCost of an item keeps sums of costs finite.
const maxCost = 1e12

// newItem takes an item from the free list and puts it into the sequence before next; nil: at the
// end.
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
	if it.cost = min(e.Cost, maxCost); !(it.cost > 0) { // not a number is not above 0 either
		it.cost = 1
	}
	b.items.add(it, next)
	if len(e.Keys) > 0 {
		it.hash = uint64(e.Keys[0]) | 1<<63
		b.link(it, e.Keys)
	}
	return it
}

// finish takes an item that has settled, or was replaced by its pieces, out of the sequence.
func (b *backlog) finish(it *item) {
	b.leave(it)
	it.state = isDone
	b.items.remove(it)
	if it.account.suspect {
		b.apart.suspects--
	}
	b.unlink(it)
	b.release(it)
}

// release frees a finished item when nothing of it runs any more.
func (b *backlog) release(it *item) {
	if it.state == isDone && len(it.running) == 0 {
		it.by, it.state = nil, isFree
		b.freeItems = append(b.freeItems, it)
	}
}

// leave takes it out of the queue in which it waits.
func (b *backlog) leave(it *item) {
	switch it.state {
	case inFresh:
		b.fresh.remove(it)
	case inRedo:
		b.queueOf(it).remove(it)
	case inDelay:
		b.delayed.removeAt(it.at)
	case inApart:
		b.apart.remove(it)
	}
	b.retrying.remove(it)
	b.lanes.unfirst(it)
}
