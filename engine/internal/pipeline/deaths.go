package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// mortal is a worker of whose deaths the sender hears in its own words. A panic it sees itself. What becomes of a batch of
// which workers die is the machine's to decide: see control.Poison.
type mortal struct{ worker stream.Worker }

// Deliver implements stream.Worker.
func (m mortal) Deliver(ctx context.Context, a stream.Attempt) (flow.Report, error) {
	report, err := m.worker.Deliver(ctx, a)
	if err == nil {
		return report, nil
	}
	e, ok := errors.AsType[*stream.DiedError](err)
	if !ok {
		return report, err
	}
	if s, ok := errors.AsType[*stream.Split](err); ok {
		if e.Culprit != nil {
			s.Died = 1 + slices.IndexFunc(s.Rest, func(it flow.Item[*stream.Batch]) bool { return it.Value == e.Culprit })
		}
		return report, err
	}
	return report, &flow.Died{Err: err}
}

// mortals wraps the workers of lanes.
func mortals(lanes []stream.Lane) []stream.Lane {
	wrapped := make([]stream.Lane, len(lanes))
	for i, l := range lanes {
		l.Worker = mortal{l.Worker}
		wrapped[i] = l
	}
	return wrapped
}
