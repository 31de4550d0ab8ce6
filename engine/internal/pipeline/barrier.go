package pipeline

import (
	"context"
	"sync/atomic"
	"time"
)

// barrier makes the routes of a source wait for each other: a route does not read until all routes
// have opened their reader or ended, or until it has waited for openBound. So a route with a slow
// sink delays the others only for a while. Some sources choose the id of a partition when they
// first find its data, and must then know the progress of all routes.
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
