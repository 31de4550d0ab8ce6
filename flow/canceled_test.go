package flow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowContext is a context that is done some time before its children are.
type slowContext struct {
	context.Context
	done   chan struct{}
	cancel func() // cancels the child
}

func (c *slowContext) Done() <-chan struct{} { return c.done }

func (c *slowContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc is called by package context for a child.
func (c *slowContext) AfterFunc(f func()) (stop func() bool) {
	c.cancel = f
	return func() bool { return false }
}

// TestCanceledBeforeItsChildren cancels Run while nothing else wakes the loop. A context closes its
// own Done before it cancels its children. Run must end even if it wakes between these two steps.
func TestCanceledBeforeItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		s := mustSender(t, d.options()) // without a lane, the first items wait
		ctx := &slowContext{Context: t.Context(), done: make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, these(values(1, 2, 3, 4, 5, 6, 7, 8, 9)...)) }()
		synctest.Wait()
		close(ctx.done)
		synctest.Wait()
		ctx.cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v, want %v", err, context.Canceled)
			}
		case <-time.After(time.Second):
			t.Error("Run has not ended a second after its context was canceled")
		}
	})
}
