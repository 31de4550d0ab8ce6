package pipeline

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/telemetry"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// sender delivers batches to the sink's workers. It records the outcomes of batches in the books
// (the counts and the progress of the route).
type sender struct {
	*core
	letters *letterWriter
	waits   *waits
	next    func(ctx context.Context) (*job, error) // the next batch, in read order
	unsaved func(bytes int64, parts int)            // called after each batch has settled
	broken  func(err error)                         // called if next or a processor has failed

	withdrawals *withdrawals // set before Run
	stability   stability

	trace *trace.File // nil if tracing is disabled
	// tracer returns a tracer for a sender with the given start time. It is nil if telemetry is
	// disabled or telemetry.traces is 0.
	tracer func(started time.Time) *telemetry.Tracer

	laneOrder sync.Mutex // serializes changes of laneSet; taken before core.mu
	// core.mu guards the fields below.
	sender  *flow.Sender[*stream.Batch]
	laneSet []stream.Lane
	window  window.Algorithm // of the workers; nil before the sender exists
}

// Run delivers until the data ends.
func (r *sender) Run(ctx context.Context) error {
	return r.sender.Run(ctx, flow.ProducerFunc[*stream.Batch](r.nextItem))
}

// open creates the sender of package flow for the sink's lanes. A lane is a worker's place in
// that sender.
func (r *sender) open() error {
	lanes := r.lanes()
	c, err := controlConfig(r.cfg, lanes)
	if err != nil {
		return err
	}
	c.Defer = r.waits.options() != nil // as in flow.New; needed in the header of the trace
	traced, err := r.observe(c)
	if err != nil {
		return err
	}
	sender, err := flow.New(flow.Options[*stream.Batch]{
		Control: c, MaxBytes: -1, Abandon: r.cfg.Flow.Abandon, Trace: traced,
		Bisect: r.bisect, DeadLetter: r.letters.writeRefused, Settled: r.settled,
		Released: r.released, Failed: r.failed,
		AwaitRepair: true, Waiting: r.waits.options(), Withdrawn: r.withdrawal,
	})
	if err != nil {
		return err
	}
	r.laneOrder.Lock()
	defer r.laneOrder.Unlock()
	r.mu.Lock()
	lanes = r.laneSet // the sink may have changed its lanes
	r.sender = sender
	r.window = c.Window
	if r.cfg.Flow.Order == "partition" || r.cfg.Flow.Order == "" && allOrdered(lanes) {
		r.order = byPartition
		if len(lanes) == 1 && allOrdered(lanes) {
			r.order = inOneLane
		}
	}
	r.mu.Unlock()
	return sender.SetLanes(lanes)
}

func allOrdered(lanes []stream.Lane) bool {
	for _, l := range lanes {
		if !l.Limits.Ordered {
			return false
		}
	}
	return len(lanes) > 0
}

// saved tells flow control that progress was saved for the given number of bytes. The sender may
// then send as many more bytes without exceeding checkpoint.replay.
func (r *sender) saved(bytes int64) { r.sender.Saved(bytes) }

// lanes returns the lanes of the sink's workers.
func (r *sender) lanes() []stream.Lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.laneSet
}

// setLanes changes the lanes, one for each worker. The sink calls it. If the sender does not exist
// yet, it will start with these lanes.
func (r *sender) setLanes(lanes []stream.Lane) {
	r.laneOrder.Lock()
	defer r.laneOrder.Unlock()
	lanes = r.observed.timed(lanes)
	r.mu.Lock()
	r.laneSet = lanes
	sender := r.sender
	r.mu.Unlock()
	if sender == nil {
		return
	}
	if err := sender.SetLanes(lanes); err != nil {
		r.host.log.Error("the sink's new list of workers was refused; the old one remains in use",
			"error", err)
	}
}

// settled records the outcome of a batch, or of a piece of a split batch. (A piece has some of the
// batch's records.) The sender's event loop calls it.
func (r *sender) settled(it flow.Item[*stream.Batch], s flow.Settlement) {
	if s.Withdrawn {
		r.withdrew(it.Value)
		return
	}
	if !s.DeadLettered {
		r.failures.recovered(part{s.Lane, true})
	}
	r.tapSettled(it, s)
	r.observed.sent(it.Value)
	r.recordSettled(it.Value, batchOutcome{lane: s.Lane, token: s.ResumeToken,
		deadLettered: s.DeadLettered})
}

// settleUnsent settles a batch that is not sent to a worker, because all its records are dropped or
// dead.
func (r *sender) settleUnsent(b *stream.Batch) {
	r.recordSettled(b, batchOutcome{unsent: true})
	b.Release()
}

// recordSettled notes the outcome of a batch, and wakes the saver if necessary (see saver.wake). It
// stops the route if there are too many dead letters (see deadletter.Guard).
func (r *sender) recordSettled(b *stream.Batch, end batchOutcome) {
	r.progress.Store(int64(r.now()))
	r.observed.settled(b, end.deadLettered)
	r.waits.reopen(b.Spans) // while the store still has the ranges of b
	r.waits.settled(b)      // before the books, from which the checkpoint is made
	r.mu.Lock()
	r.books.now = r.now()
	delivered, dead, dropped, err := r.books.settle(b, end)
	if delivered+dead+dropped > 0 {
		r.stability.settle()
	}
	if err == nil {
		err = r.guard.Observe(time.Now(), delivered, dead)
	}
	unsaved, parts := r.books.unsavedBytes, r.books.unsavedParts
	r.mu.Unlock()
	r.assigned.settled()
	if _, guarded := errors.AsType[*deadletter.GuardError](err); guarded {
		err = supervise.Final(err)
	}
	if err != nil {
		r.host.stop(err)
	}
	r.unsaved(unsaved, parts)
}

// failed notes a failed attempt. The sender's event loop calls it.
func (r *sender) failed(_ context.Context, it flow.Item[*stream.Batch], f flow.Failure) {
	by := refuser{worker: f.Lane, attempts: f.Number} // in case this was the last attempt
	r.letters.refused(by, it.Value)
	r.assigned.fenced(f.Err)
	r.tapFailed(it, f)
	if f.Died {
		r.host.Count("worker_deaths", 1)
	}
	if f.Outcome == control.Rejected {
		return
	}
	if s, ok := errors.AsType[*stream.Split](f.Err); ok && f.Outcome == control.Split {
		for _, piece := range s.Refused {
			r.letters.refused(by, piece.Value)
		}
		if len(s.Rest) == 0 {
			return // the dead letters contain the failure
		}
	}
	r.failures.failed(it, f)
}

// released releases a batch. The sender's event loop calls it when the sender no longer uses the
// batch (see flow.Options.Released).
func (r *sender) released(it flow.Item[*stream.Batch]) {
	r.letters.takeRefuser(it.Value)
	it.Value.Release()
}

// bisect splits a refused batch into halves. The sender's event loop calls it.
func (r *sender) bisect(it flow.Item[*stream.Batch], _ error) []flow.Item[*stream.Batch] {
	b := it.Value
	m := b.Middle()
	if m == 0 {
		return nil
	}
	return []flow.Item[*stream.Batch]{r.item(b.Cut(0, m), it.Keys), r.item(b.Cut(m, len(b.Records)), it.Keys)}
}

// nextItem passes batches to the sender of package flow in read order. If the route needs no
// processing goroutines, nextItem also reads the batches itself. Each batch then goes from the
// source to the sender without a switch between goroutines.
func (r *sender) nextItem(ctx context.Context) (flow.Item[*stream.Batch], error) {
	it, err := r.nextToSend(ctx)
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		r.broken(err)
	}
	return it, err
}

func (r *sender) nextToSend(ctx context.Context) (flow.Item[*stream.Batch], error) {
	for {
		j, err := r.next(ctx)
		switch {
		case err != nil:
			return flow.Item[*stream.Batch]{}, err
		case !r.withdrawals.take(j):
			j.batch.Release()
			continue
		case j.err != nil:
			j.batch.Release()
			return flow.Item[*stream.Batch]{}, j.err
		case !r.nothingToSend(j.batch):
			r.assigned.send(j.batch)
			return r.item(j.batch, j.keys), nil
		}
		r.settleUnsent(j.batch)
	}
}

func (r *sender) item(b *stream.Batch, keys []string) flow.Item[*stream.Batch] {
	return flow.Item[*stream.Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes(), Keys: keys}
}

// nothingToSend reports whether b needs no worker, because none of its records is kept. It always
// returns false if the sink has a ledger (the progress in its own database): even for such a batch,
// the sink must store the range of source positions.
func (r *sender) nothingToSend(b *stream.Batch) bool {
	return r.letters.ledgered == nil && b.Kept() == 0
}
