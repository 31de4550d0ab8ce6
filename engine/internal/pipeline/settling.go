package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// settled is called by the sender's loop, once for each batch or piece.
func (r *route) settled(it flow.Item[*stream.Batch], s flow.Settlement) {
	r.close1(it.Value, ending{lane: s.Lane, place: s.Place, buried: s.Buried})
}

// settleUnsent settles a batch of which nothing is left to send.
func (r *route) settleUnsent(b *stream.Batch) {
	r.close1(b, ending{unsent: true})
	b.Release()
}

// close1 books one settled batch, and wakes the checkpoint: it writes at once when a quarter of the replay bound has settled, else soon.
func (r *route) close1(b *stream.Batch, end ending) {
	r.progress.Store(int64(time.Since(r.started)))
	if r.manifest != nil {
		r.manifest.Settled(b, end.buried)
	}
	r.memory.waits.settled(b) // before the ledger, from which the checkpoint is made
	r.mu.Lock()
	r.books.now = time.Since(r.started)
	delivered, dead, _, err := r.books.settle(b, end)
	if err == nil {
		err = r.guard.Observe(time.Now(), delivered, dead)
	}
	unsaved := r.books.unsavedBytes
	r.mu.Unlock()
	if _, guarded := errors.AsType[*deadletter.GuardError](err); guarded {
		err = final(err)
	}
	if err != nil {
		r.host.stop(err)
	}
	if unsaved >= int64(r.cfg.Checkpoint.Replay)/4 {
		wake(r.quarter)
	} else if unsaved > 0 {
		wake(r.some) // nil where it is not written soon
	}
	if settlerOf(r) != nil {
		wake(r.some)
	}
}

// wake sends to a channel with room for one, unless it is awake already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// refuser is who refused a batch, or failed it last, for its dead letters.
type refuser struct {
	worker   string
	attempts int
}

// failed is called by the sender's loop with each attempt that did not deliver.
func (r *route) failed(_ context.Context, it flow.Item[*stream.Batch], f flow.Failure) {
	r.mu.Lock()
	r.refusers[it.Value] = refuser{worker: f.Lane, attempts: f.Number} // should it be the last
	r.mu.Unlock()
	if f.Died {
		r.host.Count("worker_deaths", 1)
	}
	if f.Outcome == control.Rejected {
		return
	}
	if s, ok := errors.AsType[*stream.Split](f.Err); ok && f.Outcome == control.Split {
		r.mu.Lock()
		for _, piece := range s.Refused {
			r.refusers[piece.Value] = refuser{worker: f.Lane, attempts: f.Number}
		}
		r.mu.Unlock()
		if len(s.Rest) == 0 {
			return // the dead letters say it
		}
	}
	r.failures.failed(it, f)
}

// released is called by the sender's loop when no attempt of an item runs any more.
func (r *route) released(it flow.Item[*stream.Batch]) {
	r.mu.Lock()
	delete(r.refusers, it.Value)
	r.mu.Unlock()
	it.Value.Release()
}

// bisect halves a refused batch for the sender's loop.
func (r *route) bisect(it flow.Item[*stream.Batch], _ error) []flow.Item[*stream.Batch] {
	b := it.Value
	m := b.Middle()
	if m == 0 {
		return nil
	}
	return []flow.Item[*stream.Batch]{r.item(b.Cut(0, m), it.Keys), r.item(b.Cut(m, len(b.Records)), it.Keys)}
}

// bury makes what is kept of a refused batch dead letters. It runs on a goroutine of the sender and returns
// when they are durable and, where the sink keeps a ledger, their spans are in it: else they would come again after a crash.
func (r *route) bury(ctx context.Context, it flow.Item[*stream.Batch], refusal error) error {
	if ctx.Err() != nil { // the guard may have stopped the route: not one record more
		return context.Cause(ctx)
	}
	b := it.Value
	b.Split()
	r.mu.Lock()
	by := r.refusers[b]
	delete(r.refusers, b)
	r.mu.Unlock()
	own, _ := errors.AsType[*stream.RefusedError](refusal)
	err := r.writeLetters(ctx, b, by, func(i int) (error, bool) {
		if own != nil {
			if reason := own.Reasons[string(b.AppendRecordID(nil, i))]; reason != nil {
				return reason, b.Records[i].State == stream.Kept
			}
		}
		return refusal, b.Records[i].State == stream.Kept
	})
	if err != nil || r.ledgered == nil {
		return err
	}
	return r.storeSpans(ctx, b.Spans)
}

// storeBackoff paces what is tried again until the sink has stored the spans of dead letters.
var storeBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Full()

func (r *route) storeSpans(ctx context.Context, spans []stream.Span) error {
	o := retry.Options{Policy: storeBackoff, MaxAttempts: -1, Classify: func(error) retry.Action { return retry.Retry }}
	o.OnEvent = func(_ context.Context, e retry.Event) {
		if e.Kind == retry.AttemptFailed {
			r.host.log.Warn("the sink could not store the spans of dead letters; it is tried again", "again_in", e.Wait, "error", e.Err)
		}
	}
	return retry.Do(ctx, func(ctx context.Context) error { return r.ledgered.Store(ctx, spans) }, o)
}

// buryDead makes the records that processors or the reader buried dead letters, before the batch is sent.
func (r *route) buryDead(ctx context.Context, b *stream.Batch) error {
	if b.Untouched() {
		return nil
	}
	return r.writeLetters(ctx, b, refuser{}, func(i int) (error, bool) { return b.Reason(i), b.Records[i].State == stream.Dead })
}

func (r *route) writeLetters(ctx context.Context, b *stream.Batch, by refuser, which func(i int) (error, bool)) error {
	var letters []deadletter.Letter
	for i := range b.Records {
		reason, dead := which(i)
		if !dead {
			continue
		}
		rec := &b.Records[i]
		part := b.Spans[rec.Span].Part
		text, detail := fmt.Sprint(reason), ""
		if g, ok := errors.AsType[stream.Grouped](reason); ok {
			text, detail = g.Group()
		}
		letters = append(letters, deadletter.Letter{
			ID: string(b.AppendRecordID(nil, i)), Reason: stream.MaskURLs(text), Detail: stream.MaskURLs(detail),
			Partition: part.ID, File: part.Name, Position: rec.Origin, Record: b.Text(i),
			Attempts: by.attempts, Worker: by.worker,
		})
	}
	if len(letters) == 0 {
		return nil
	}
	if err := r.letters.Append(ctx, letters); err != nil {
		return err
	}
	r.failures.buried(letters, r.letters.Path())
	return nil
}
