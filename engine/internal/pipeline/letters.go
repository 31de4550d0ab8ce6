package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// letterWriter makes records dead letters.
type letterWriter struct {
	*core
	store    *deadletter.Store        // set by prepare
	ledgered stream.TransactionalSink // nil: the local checkpoint is the truth

	by       sync.Mutex                // guards refusers
	refusers map[*stream.Batch]refuser // of batches that an attempt did not deliver
}

// refuser is who refused a batch, or failed it last, for its dead letters.
type refuser struct {
	worker   string
	attempts int
}

// refused notes who refused batches, or failed them last.
func (r *letterWriter) refused(by refuser, batches ...*stream.Batch) {
	r.by.Lock()
	defer r.by.Unlock()
	for _, b := range batches {
		r.refusers[b] = by
	}
}

// take returns who refused a batch, and forgets it.
func (r *letterWriter) take(b *stream.Batch) refuser {
	r.by.Lock()
	defer r.by.Unlock()
	by := r.refusers[b]
	delete(r.refusers, b)
	return by
}

// bury makes what is kept of a refused batch dead letters. It runs on a goroutine of the sender and
// returns when they are durable and, where the sink keeps a ledger, their spans are in it: else
// they would come again after a crash.
func (r *letterWriter) bury(ctx context.Context, it flow.Item[*stream.Batch], refusal error) error {
	if ctx.Err() != nil { // the guard may have stopped the route: not one record more
		return context.Cause(ctx)
	}
	b := it.Value
	b.Split()
	by := r.take(b)
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

func (r *letterWriter) storeSpans(ctx context.Context, spans []stream.Span) error {
	o := retry.Options{Policy: storeBackoff, MaxAttempts: -1, Classify: func(error) retry.Action { return retry.Retry }}
	o.OnEvent = func(_ context.Context, e retry.Event) {
		if e.Kind == retry.AttemptFailed {
			r.host.log.Warn("the sink could not store the spans of dead letters; it is tried again", "again_in", e.Wait, "error", e.Err)
		}
	}
	return retry.Do(ctx, func(ctx context.Context) error {
		err := r.ledgered.Store(ctx, spans)
		if err != nil && r.assigned.stale(spans) {
			return nil // the next owner has the records
		}
		r.assigned.fenced(err)
		return err
	}, o)
}

// buryDead makes the records that processors or the reader buried dead letters, before the batch is
// sent.
func (r *letterWriter) buryDead(ctx context.Context, b *stream.Batch) error {
	if b.Untouched() {
		return nil
	}
	return r.writeLetters(ctx, b, refuser{}, func(i int) (error, bool) { return b.Reason(i), b.Records[i].State == stream.Dead })
}

func (r *letterWriter) writeLetters(ctx context.Context, b *stream.Batch, by refuser, which func(i int) (error, bool)) error {
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
	if err := r.store.Append(ctx, letters); err != nil {
		return err
	}
	r.failures.buried(letters, r.store.Path())
	return nil
}
