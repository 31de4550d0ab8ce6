package flow

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// heldItem is an item that the Sender holds: from the time when a Producer, Bisect, a [Split] or a
// [WaitStore] returns it until the call of Options.Released. The goroutine of the event loop owns
// it.
type heldItem[T any] struct {
	Item[T]
	seq     uint64
	keys    []uint32         // interned
	running int              // attempts
	sent    bool             // an attempt of it, or of an item that it replaces, was started
	done    bool             // settled, or replaced by pieces
	refusal error            // reason of the last attempt that refused it, or of the state machine
	failure error            // error of the last failed or timed-out attempt
	tokens  []deliveredToken // tokens of attempts that delivered it and reported a token
}

// deliveredToken is the Report.ResumeToken of an attempt. It is kept until the item settles, which
// on an Ordered lane may be later than the return of the attempt.
type deliveredToken struct {
	id    uint64
	token string
}

func (h *heldItem[T]) token(id uint64) string {
	for i := range h.tokens {
		if h.tokens[i].id == id {
			return h.tokens[i].token
		}
	}
	return ""
}

// store holds the items. It is bounded by Options.MaxBytes, or by the producer.
type store[T any] struct {
	bySeq    map[uint64]*heldItem[T]
	keys     keyTable
	last     uint64 // sequence number
	open     int    // items not yet settled or replaced
	bytes    int64  // bytes of the open items
	free     []*heldItem[T]
	deferred deferredItems[T] // items that Options.Waiting keeps
}

// maxFreeItems bounds the items that are kept for reuse.
const maxFreeItems = 1024

// add adds an item as the next one in sequence. If the item's cost or size is invalid, add uses the
// smallest valid value instead and also returns an error.
func (s *store[T]) add(it Item[T]) (*heldItem[T], error) {
	var h *heldItem[T]
	if n := len(s.free); n > 0 {
		h = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		h = new(heldItem[T])
	}
	s.last++
	keys, tokens := h.keys[:0], h.tokens[:0]
	*h = heldItem[T]{Item: it, seq: s.last, keys: s.keys.intern(keys, it.Keys), tokens: tokens}
	s.bySeq[h.seq] = h
	s.open++
	var err error
	if h.Cost = costOf(h.Cost); !(h.Cost > 0) || math.IsInf(h.Cost, 0) {
		err = fmt.Errorf("flow: item %d costs %v; want a number above 0, or 0 for 1", h.seq, h.Cost)
		h.Cost = 1
	}
	if h.Bytes < 0 {
		err = fmt.Errorf("flow: item %d has %d bytes; want 0 or more", h.seq, h.Bytes)
		h.Bytes = 0
	}
	s.bytes += h.Bytes
	return h, err
}

// finish counts h as settled or replaced.
func (s *store[T]) finish(h *heldItem[T]) {
	h.done = true
	s.open--
	s.bytes -= h.Bytes
}

// drop removes h, which is about to be released.
func (s *store[T]) drop(h *heldItem[T]) {
	delete(s.bySeq, h.seq)
	s.keys.release(h.keys)
	clear(h.tokens)
	if len(s.free) < maxFreeItems {
		keys, tokens := h.keys, h.tokens
		*h = heldItem[T]{keys: keys, tokens: tokens} // release the item's references
		s.free = append(s.free, h)
	}
}

// all returns the items that are held, in sequence.
func (s *store[T]) all() []*heldItem[T] {
	return slices.SortedFunc(maps.Values(s.bySeq),
		func(a, b *heldItem[T]) int { return int(a.seq) - int(b.seq) })
}

// keyTable maps each key of a held item to a number. When no held item has the key any more, its
// number may be used for another key.
type keyTable struct {
	numbers map[string]uint32
	uses    []keyUse // the keys by their numbers
	free    []uint32
}

type keyUse struct {
	key  string
	refs int
}

func (t *keyTable) intern(dst []uint32, keys []string) []uint32 {
	for _, key := range keys {
		n, ok := t.numbers[key]
		if !ok {
			if len(t.free) > 0 {
				n = t.free[len(t.free)-1]
				t.free = t.free[:len(t.free)-1]
			} else {
				n = uint32(len(t.uses))
				t.uses = append(t.uses, keyUse{})
			}
			t.uses[n] = keyUse{key: key}
			if t.numbers == nil {
				t.numbers = make(map[string]uint32)
			}
			t.numbers[key] = n
		}
		t.uses[n].refs++
		dst = append(dst, n)
	}
	return dst
}

func (t *keyTable) release(numbers []uint32) {
	for _, n := range numbers {
		u := &t.uses[n]
		if u.refs--; u.refs == 0 {
			delete(t.numbers, u.key)
			*u = keyUse{}
			t.free = append(t.free, n)
		}
	}
}

// costOf returns the cost of an item: 1 if Item.Cost is 0.
func costOf(cost float64) float64 { return cmp.Or(cost, 1) }
