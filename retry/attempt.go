package retry

import (
	"context"
	"crypto/rand"
	"reflect"
	"sync/atomic"
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
	inside          bool                 // the caller's context is itself of an attempt
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

// recent is the mark of the context that was used last and before that: loops call with one context again and again.
// lastSeen holds only the address of the context seen last, so that a context of one use is neither kept nor alive.
var (
	recent   atomic.Pointer[mark]
	lastSeen atomic.Uintptr
	// background is the mark of context.Background().
	background = &mark{Context: context.Background(), number: 1}
)

// first returns the mark of the first attempt below ctx.
func first(ctx context.Context, key string) *mark {
	if m := recent.Load(); m != nil && key == "" && m.Context == ctx {
		return m
	}
	return unseen(ctx, key)
}

// unseen makes or finds the mark of a context that is not the recent one. Only contexts that are pointers are
// compared with others, as comparing may panic for the rest.
func unseen(ctx context.Context, key string) *mark {
	if key == "" {
		if ctx == context.Background() {
			return background
		}
		if outer, ok := ctx.(*mark); ok {
			if m := outer.inner.Load(); m != nil {
				return m
			}
		}
	}
	m := &mark{Context: ctx, number: 1, key: key}
	outer, ok := ctx.Value(markKey{}).(*mark)
	if ok {
		m.inside = true
		if key == "" {
			m.key = outer.key
		}
	}
	switch {
	case key != "":
	case ok && ctx == context.Context(outer):
		outer.inner.CompareAndSwap(nil, m)
	default:
		if v := reflect.ValueOf(ctx); v.Kind() == reflect.Pointer && lastSeen.Swap(v.Pointer()) == v.Pointer() {
			recent.Store(m)
		}
	}
	return m
}

// following returns the mark of the attempt after m.
func (m *mark) following(target int) *mark {
	if n := m.next.Load(); n != nil && n.target == target {
		return n
	}
	n := &mark{Context: m.Context, key: m.key, number: m.number + 1, target: target, inside: m.inside}
	if target == m.target && m.number < maxShared {
		m.next.CompareAndSwap(nil, n)
	}
	return n
}
