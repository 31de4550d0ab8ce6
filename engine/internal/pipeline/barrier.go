package pipeline

import (
	"context"
	"sync/atomic"
	"time"
)

// barrier keeps routes from reading until every route of the source has opened its reader or ended.
// Some sources choose the id of a partition when they first find it. They must know the marks of
// all routes before that. A route with a slow sink delays the others by at most openBound.
type barrier struct {
	missing atomic.Int32
	open    chan struct{} // closed by the last arrival
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
