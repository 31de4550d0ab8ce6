package pipeline

import (
	"context"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// budget bounds the memory of a route's batches. Before a batch is read, the reader waits until
// there is room for its estimated size, and the batch is charged the estimate. After the batch was
// read, the charge is corrected to its actual size, without a wait. So no batch waits while it uses
// memory, and batches cannot deadlock. The memory in use may exceed the bound by the difference
// between the actual and the estimated sizes.
type budget struct {
	total int64

	mu     sync.Mutex // guards the fields below
	usual  int64      // estimated size of the next batch
	used   int64      // bytes charged
	taken  map[*stream.Batch]int64
	wanted chan struct{} // closed when memory is released; nil if no reader waits
}

// newBudget returns a budget with total as the bound on its memory. Until the first batch was read,
// the estimated size of a batch is share, but at most total/leastBatches.
func newBudget(total, share int64) *budget {
	return &budget{total: total, usual: min(max(1, share), total/leastBatches), taken: make(map[*stream.Batch]int64)}
}

const (
	leastBatches  = 2        // always allowed, so that one can be read while another is sent
	estimateDecay = 8        // a smaller batch lowers the estimate by 1/8 of the difference
	overhead      = 32 << 10 // of an in-flight batch: its request and stacks of its goroutines
	usualArena    = 64 << 10
)

// acquire waits until there is room for one more batch, and charges the estimate for it.
func (u *budget) acquire(ctx context.Context, b *stream.Batch) error {
	for {
		u.mu.Lock()
		if u.hasRoom() {
			u.charge(b, u.usual)
			u.mu.Unlock()
			return nil
		}
		if u.wanted == nil {
			u.wanted = make(chan struct{})
		}
		wanted := u.wanted
		u.mu.Unlock()
		select {
		case <-wanted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (u *budget) hasRoom() bool { return len(u.taken) < leastBatches || u.used+u.usual <= u.total }

// charge makes bytes the charge of b, in place of its earlier charge.
func (u *budget) charge(b *stream.Batch, bytes int64) {
	u.used += bytes - u.taken[b]
	u.taken[b] = bytes
}

// correct sets the charge of b to its actual size, without waiting. Only the owner of b calls it.
func (u *budget) correct(b *stream.Batch) {
	size := b.Size() + overhead
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.taken[b]; !ok {
		return
	}
	u.charge(b, size)
	if size < u.usual {
		size = u.usual - (u.usual-size)/estimateDecay
	}
	u.usual = min(size, u.total/leastBatches)
	u.wake()
}

// freed removes the charge of b. The pool calls it when the last reference to b was released.
func (u *budget) freed(b *stream.Batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used -= u.taken[b]
	delete(u.taken, b)
	u.wake()
}

func (u *budget) wake() {
	if u.wanted != nil && u.hasRoom() {
		close(u.wanted)
		u.wanted = nil
	}
}

// arenas returns the number of released arenas (buffers of batches) that the pool may keep for
// reuse.
func (u *budget) arenas() int { return int(max(leastBatches, u.total/usualArena)) }

// exhausted reports whether the next batch must wait until memory is released.
func (u *budget) exhausted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.hasRoom()
}
