package pipeline

import (
	"context"
	"sync/atomic"
	"time"
)

// barrier lets no route read before every route of its source has opened its reader, or has given
// up: a source that gives a partition its id at first sight must have seen the marks of all routes
// by then. A route whose sink takes long to open holds the others up for openBound at most.
type barrier struct {
	missing atomic.Int32
	open    chan struct{} // closed by the last
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
