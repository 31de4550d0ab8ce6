package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

// begin opens the sink and the reader of the route. Then it waits for the other routes of the
// source, see barrier. If the route drains before that, begin returns false and a nil error: no
// batch is in flight yet, so there is nothing to finish. A finite run fails if opening takes longer
// than the option Stall.
func (r *route) begin(ctx context.Context, group *supervise.Group) (ready bool, err error) {
	opening, end := context.WithCancelCause(ctx) // a sink may keep it; only the route ends it
	errLate := fmt.Errorf("it has not opened within %v", r.slot.o.Stall)
	timeout := time.NewTimer(r.slot.o.Stall)
	defer timeout.Stop()
	if !r.once || r.slot.o.Stall <= 0 {
		timeout.Stop()
	}
	done := make(chan struct{})
	defer close(done)
	group.Go("opening", func(ctx context.Context) error {
		select {
		case <-r.drained:
			end(ErrDraining)
		case <-timeout.C:
			end(errLate)
		case <-done:
		case <-ctx.Done():
		}
		return nil
	})
	err = r.open(opening)
	timeout.Stop()
	r.slot.enterBarrier()
	if err == nil {
		r.sender.stability.open()
		err = r.pipe.barrier().wait(opening)
	}
	if err != nil && errors.Is(context.Cause(opening), ErrDraining) {
		r.host.log.Info("drained before it had opened", "error", err)
		return false, nil
	}
	if err != nil && errors.Is(context.Cause(opening), errLate) {
		err = fmt.Errorf("%w: %w", errLate, err)
	}
	return err == nil, err
}
