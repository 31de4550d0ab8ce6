package pipeline

import (
	"context"
	"sync/atomic"
	"time"
)

// barrier makes the routes of a source wait for each other: no route reads before all routes have
// opened their reader or ended. Some sources need this, because they choose the id of a partition
// when they first find its data. They must then know the progress of all routes. If a route takes
// long to open, for example because of a slow sink, the other routes wait at most openBound.
type barrier struct {
	missing atomic.Int32
	open    chan struct{} // closed when the last route arrives
}

const openBound = 30 * time.Second

func newBarrier(routes int) *barrier {
	b := &barrier{open: make(chan struct{})}
	b.missing.Store(int32(routes))
	return b
}

func (b *barrier) arrive() {
	if b.missing.Add(-1) == 0 {
		close(b.open)
	}
}

func (b *barrier) wait(ctx context.Context) error {
	bound := time.NewTimer(openBound)
	defer bound.Stop()
	select {
	case <-b.open:
	case <-bound.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
