package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/stream"
)

// timedWorker is a worker that measures its attempts.
type timedWorker struct {
	stream.Worker
	roundTrips prometheus.Observer
}

// Deliver implements stream.Worker. It also measures attempts that panic.
func (w *timedWorker) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	begun := time.Now()
	defer func() { w.roundTrips.Observe(time.Since(begun).Seconds()) }()
	return w.Worker.Deliver(ctx, a)
}

// timed returns the sink's lanes with workers that also record the duration of each attempt.
func (o *observers) timed(lanes []stream.Lane) []stream.Lane {
	lanes = slices.Clone(lanes)
	for i := range lanes {
		if lanes[i].Worker != nil { // the sender reports a nil worker as an error
			lanes[i].Worker = &timedWorker{lanes[i].Worker, o.roundTrips}
		}
	}
	return lanes
}
