package pipeline

import (
	"context"
	"sync/atomic"

	"github.com/penstock-io/penstock"
)

// budget bounds the memory of a route's batches. A batch is charged once, before it is read, with what it
// usually takes, and given back when its arena is free: nobody who holds a share ever waits for another one,
// so batches cannot wait for each other in a circle.
type budget struct {
	slots chan struct{} // one for each batch that may exist
	live  atomic.Int64  // batches now
}

// newBudget allows as many batches as fit into total when each takes share; at least two, so that one can be
// read while one is sent.
func newBudget(total, share int64) *budget {
	return &budget{slots: make(chan struct{}, max(2, total/max(1, share)))}
}

func (u *budget) acquire(ctx context.Context) error {
	select {
	case u.slots <- struct{}{}:
		u.live.Add(1)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// freed is called by the pool with each batch whose last reference is gone.
func (u *budget) freed(*penstock.Batch) {
	u.live.Add(-1)
	<-u.slots
}

// exhausted says whether the next batch has to wait for another one's end.
func (u *budget) exhausted() bool { return len(u.slots) == cap(u.slots) }

// size is how many batches may exist.
func (u *budget) size() int { return cap(u.slots) }
