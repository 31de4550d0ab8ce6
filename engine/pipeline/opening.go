package pipeline

import (
	"context"
	"errors"

	"github.com/penstock-io/penstock/supervise"
)

// begin opens what the route needs and waits until the other routes of its source have. ready is false without an error where
// the route was drained meanwhile: nothing is in flight yet, so there is nothing to wait for, least of all a receiver that does not
// answer.
func (r *route) begin(ctx context.Context, group *supervise.Group) (ready bool, err error) {
	opening, end := context.WithCancelCause(ctx) // a sink may keep it: once all is open, only the route ends it
	done := make(chan struct{})
	defer close(done)
	group.Go("opening", func(ctx context.Context) error {
		select {
		case <-r.drained:
			end(ErrDraining)
		case <-done:
		case <-ctx.Done():
		}
		return nil
	})
	err = r.open(opening)
	r.slot.arrive()
	if err == nil {
		r.opens.Store(true)
		err = r.pipe.opening.wait(opening)
	}
	if err != nil && errors.Is(context.Cause(opening), ErrDraining) {
		r.host.log.Info("drained before it had opened", "error", err)
		return false, nil
	}
	return err == nil, err
}
