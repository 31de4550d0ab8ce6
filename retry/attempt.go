package retry

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync/atomic"
	"unsafe"
)

// Attempt tells an operation where it stands in its sequence.
type Attempt struct {
	Number int    // the first is 1
	Target int    // which of Retrier.Targets services to use, from 0
	Key    string // the same for every attempt of a sequence; "" if it was given none
}

// FromContext returns the attempt in which ctx was given to an operation; false outside of one.
func FromContext(ctx context.Context) (Attempt, bool) {
	m, ok := ctx.Value(markKey{}).(*mark)
	if !ok {
		return Attempt{}, false
	}
	return Attempt{Number: m.number, Target: m.target, Key: m.key}, true
}

// NewKey returns a key that nobody else has: 130 random bits as 26 letters and digits. An operation that must not be
// done twice sends it with every attempt (the header Idempotency-Key), and stores it with the work if that work may
// outlive the process.
func NewKey() string { return rand.Text() }

type markKey struct{}

// mark is the context of one attempt. A mark never changes, apart from the two links that share further marks, so that
// an operation may keep it for as long as it likes, and sequences on the same context share marks instead of
// allocating them.
type mark struct {
	context.Context // the caller's
	key             string
	number, target  int
	mortal          bool                 // the caller's context can end
	hedge           bool                 // of a Hedge, which replaces attempts but repeats nothing
	inside          bool                 // the caller's context is itself of a retry's attempt
	next            atomic.Pointer[mark] // the attempt after this one, same target and key
	inner           atomic.Pointer[mark] // the first attempt of a retry within this attempt
}

// maxShared is the number of the last attempt whose mark is shared; later ones are rare and come after long waits.
const maxShared = 16

// Value implements context.Context.
func (m *mark) Value(key any) any {
	if _, ok := key.(markKey); ok {
		return m
	}
	return m.Context.Value(key)
}

// recent is the mark of the context that calls came with lately: loops call with one context again and again. It is
// replaced only by a context that came twice in a row, so that one of a single use is not kept alive; of the one seen
// last, lastSeen has only the address.
var (
	recent   atomic.Pointer[mark]
	lastSeen atomic.Uintptr
	// background is the mark of context.Background().
	background = &mark{Context: context.Background(), number: 1}
)

// words is an interface value as the compiler lays it out: its type, and the address of what it holds.
type words struct{ table, data uintptr }

// same reports whether two contexts are one, by the words of their interface values. It is why this package imports
// unsafe, and it only reads. What == does beyond that, a call into the runtime and for some types a comparison, makes a
// call that succeeds slower by half, and panics for contexts that cannot be compared. The address cannot be that of a
// new context, as the mark keeps the old one alive. Figures, and what was tried instead, are in docs/adr: contexts by
// their words.
func same(a, b *context.Context) bool {
	return *(*words)(unsafe.Pointer(a)) == *(*words)(unsafe.Pointer(b))
}

// known returns the mark of the first attempt below ctx if ctx is the recent context, else nil. It is small enough to
// be compiled into Do, and takes the address because Do has the context in memory anyway.
func known(ctx *context.Context) *mark {
	if m := recent.Load(); m != nil && same(&m.Context, ctx) {
		return m
	}
	return nil
}

// first returns the mark of the first attempt below ctx.
func first(ctx context.Context) *mark {
	if m := known(&ctx); m != nil {
		return m
	}
	return unseen(ctx, "")
}

// begins is first for a sequence that may have a key.
func begins(ctx context.Context, key string) *mark {
	if key == "" {
		return first(ctx)
	}
	return unseen(ctx, key)
}

// unseen makes or finds the mark of a context that is not the recent one.
func unseen(ctx context.Context, key string) *mark {
	outer, within := ctx.(*mark)
	if within && key == "" {
		if m := outer.inner.Load(); m != nil {
			return m
		}
	}
	m := background
	if key != "" || !same(&m.Context, &ctx) {
		m = &mark{Context: ctx, number: 1, key: key, mortal: ctx.Done() != nil}
	}
	if above, ok := ctx.Value(markKey{}).(*mark); ok {
		m.inside = above.inside || !above.hedge
		m.key = cmp.Or(key, above.key)
	}
	switch data := (*words)(unsafe.Pointer(&ctx)).data; {
	case key != "":
	case within:
		outer.inner.CompareAndSwap(nil, m)
	case lastSeen.Swap(data) == data:
		recent.Store(m)
	}
	return m
}

// following returns the mark of the attempt after m.
func (m *mark) following(target int) *mark {
	if n := m.next.Load(); n != nil && n.target == target {
		return n
	}
	n := &mark{Context: m.Context, key: m.key, number: m.number + 1, target: target, mortal: m.mortal, inside: m.inside, hedge: m.hedge}
	if target == m.target && m.number < maxShared {
		m.next.CompareAndSwap(nil, n)
	}
	return n
}
