package pipeline

import (
	"context"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// budget bounds the memory of a route's batches. A batch is charged once before it is read, with
// what batches took of late, and that is corrected, without waiting, to what it takes itself: so
// nobody who holds a share ever waits for another one, and batches cannot wait for each other in a
// circle. What it holds goes beyond its total by what one batch takes more than it was charged, for
// at most as long as that batch lives.
type budget struct {
	total int64

	mu     sync.Mutex // guards what follows
	usual  int64      // bytes that a batch is charged before it is read
	used   int64      // bytes charged
	taken  map[*stream.Batch]int64
	wanted chan struct{} // closed when something was given back; nil: nobody waits
}

// newBudget charges a batch with share until it is known what they take.
func newBudget(total, share int64) *budget {
	return &budget{total: total, usual: min(max(1, share), total/leastBatches), taken: make(map[*stream.Batch]int64)}
}

const (
	leastBatches = 2        // that may exist however large they are, so that one can be read while one is sent
	usualForgets = 8        // what a batch is charged falls by an eighth of the difference with each that is smaller
	besides      = 32 << 10 // of a batch on its way, beside its bytes: its request, the stacks of those that send it
	usualArena   = 64 << 10
)

// acquire waits until there is room for one more batch and charges it.
func (u *budget) acquire(ctx context.Context, b *stream.Batch) error {
	for {
		u.mu.Lock()
		if u.room() {
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

func (u *budget) room() bool { return len(u.taken) < leastBatches || u.used+u.usual <= u.total }

// charge makes it be b's part.
func (u *budget) charge(b *stream.Batch, bytes int64) {
	u.used += bytes - u.taken[b]
	u.taken[b] = bytes
}

// took corrects the charge of b to what it holds now. It does not wait, and belongs to b's one
// owner.
func (u *budget) took(b *stream.Batch) {
	size := b.Size() + besides
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.taken[b]; !ok {
		return
	}
	u.charge(b, size)
	if size < u.usual {
		size = u.usual - (u.usual-size)/usualForgets
	}
	u.usual = min(size, u.total/leastBatches)
	u.wake()
}

// freed is called by the pool with each batch whose last reference is gone.
func (u *budget) freed(b *stream.Batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used -= u.taken[b]
	delete(u.taken, b)
	u.wake()
}

func (u *budget) wake() {
	if u.wanted != nil && u.room() {
		close(u.wanted)
		u.wanted = nil
	}
}

// arenas is how many of those that were given back may be kept.
func (u *budget) arenas() int { return int(max(leastBatches, u.total/usualArena)) }

// exhausted says whether the next batch has to wait for another one's end.
func (u *budget) exhausted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.room()
}
