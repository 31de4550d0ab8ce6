package inbox

import (
	"context"
	"sync"
)

// Memory is a Store for tests. It keeps the keys in memory. Its transactions are empty: after an
// error of the change, it forgets the key but cannot undo the change. The zero value is ready for
// use.
type Memory struct {
	mu   sync.Mutex // guards keys
	keys map[string]*memoryKey
}

// memoryKey is a key that is recorded, or that has a running change.
type memoryKey struct {
	digest [32]byte
	done   chan struct{} // closed when the change has ended
	failed bool          // it was rolled back; read after done
}

var _ Store[struct{}] = (*Memory)(nil)

type memoryChange = func(ctx context.Context, tx struct{}) error

// Once implements [Store]. A call waits while another one runs the change of the same key.
func (m *Memory) Once(ctx context.Context, key Key, change memoryChange) (Result, error) {
	for {
		mine := &memoryKey{digest: key.Digest, done: make(chan struct{})}
		m.mu.Lock()
		if m.keys == nil {
			m.keys = make(map[string]*memoryKey)
		}
		other := m.keys[key.ID]
		if other == nil {
			m.keys[key.ID] = mine
		}
		m.mu.Unlock()
		if other == nil {
			return Applied, m.run(ctx, key.ID, mine, change)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		switch {
		case other.failed: // try again: the key is free
		case other.digest != key.Digest:
			return 0, ErrKeyReused
		default:
			return Repeated, nil
		}
	}
}

func (m *Memory) run(ctx context.Context, id string, mine *memoryKey,
	change memoryChange) (err error) {
	mine.failed = true // also if change panics
	defer func() {
		if mine.failed {
			m.mu.Lock()
			delete(m.keys, id)
			m.mu.Unlock()
		}
		close(mine.done)
	}()
	if err = change(ctx, struct{}{}); err == nil {
		mine.failed = false
	}
	return err
}

// Len returns the number of keys that are recorded or have a running change.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.keys)
}
