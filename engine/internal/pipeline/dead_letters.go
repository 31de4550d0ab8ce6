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

// letterWriter writes dead letters.
type letterWriter struct {
	*core
	store    *deadletter.Store        // set by prepare
	ledgered stream.TransactionalSink // nil if the sink stores no progress
	sink     stream.DeadLetterSink    // nil if the sink accepts no dead letters

	by       sync.Mutex                // guards refusers
	refusers map[*stream.Batch]refuser // by batch: the worker of its last failed attempt
}

// refuser is the worker that made the last failed attempt of a batch, with the number of this
// attempt. If the batch was refused, this is the worker that refused it.
type refuser struct {
	worker   string
	attempts int
}

// refused records the worker of the last failed attempt for each of the batches.
func (r *letterWriter) refused(by refuser, batches ...*stream.Batch) {
	r.by.Lock()
	defer r.by.Unlock()
	for _, b := range batches {
		r.refusers[b] = by
	}
}

// takeRefuser returns the refuser that was recorded for a batch, and removes it.
func (r *letterWriter) takeRefuser(b *stream.Batch) refuser {
	r.by.Lock()
	defer r.by.Unlock()
	by := r.refusers[b]
	delete(r.refusers, b)
	return by
}

// writeRefused writes the kept records of a refused batch as dead letters. It returns when the
// letters are durable. If the sink has a ledger (the progress in its own database), writeRefused
// also stores the spans of the batch (its ranges of source positions) there. Without them, a crash
// would repeat the batch. writeRefused runs on a goroutine of the sender.
func (r *letterWriter) writeRefused(ctx context.Context, it flow.Item[*stream.Batch],
	refusal error) error {
	if ctx.Err() != nil { // the route may have been stopped because of too many dead letters
		return context.Cause(ctx)
	}
	b := it.Value
	b.Split()
	by := r.takeRefuser(b)
	own, _ := errors.AsType[*stream.RefusedError](refusal)
	reason := func(i int) error {
		if own != nil {
			if reason := own.Reasons[string(b.AppendRecordID(nil, i))]; reason != nil {
				return reason
			}
		}
		return refusal
	}
	err := r.writeLetters(ctx, b, by, func(i int) (error, bool) {
		return reason(i), b.Records[i].State == stream.Kept
	})
	if err != nil || r.ledgered == nil {
		return err
	}
	if r.sink == nil {
		return r.storeSpans(ctx, b.Spans, func(ctx context.Context) error {
			return r.ledgered.Store(ctx, b.Spans)
		})
	}
	dead := deadCopy(b, reason)
	defer dead.Release()
	return r.storeSpans(ctx, b.Spans, func(ctx context.Context) error {
		return r.sink.StoreDead(ctx, dead)
	})
}

// deadCopy returns a copy of b in which each kept record i is marked as dead, with the error
// reason(i). The caller releases the copy.
func deadCopy(b *stream.Batch, reason func(i int) error) *stream.Batch {
	dead := b.Cut(0, len(b.Records))
	for i := range dead.Records {
		if dead.Records[i].State == stream.Kept {
			dead.DeadLetter(i, reason(i))
		}
	}
	return dead
}

// storeBackoff is the wait between attempts to store spans (source positions) of dead letters in
// the sink.
var storeBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Full()

// storeSpans calls the function store until it succeeds or ctx ends. store puts spans (ranges of
// source positions) into the sink's ledger. If the partition of the spans is no longer assigned to
// this process, storeSpans returns nil without success.
func (r *letterWriter) storeSpans(ctx context.Context, spans []stream.Span,
	store func(context.Context) error) error {
	const failed = "the sink could not store the spans of dead letters; retrying"
	return retry.Do(ctx, func(ctx context.Context) error {
		err := store(ctx)
		if err != nil && r.assigned.stale(spans) {
			return nil // the next owner of the partition reads the records
		}
		r.assigned.fenced(err)
		return err
	}, r.host.retryForever(storeBackoff, failed))
}

// writeMarkedDead writes dead letters for the records of b that are marked as dead. The reader or a
// processor has marked them, or the engine has, because processors died of them. writeMarkedDead is
// called before the batch is sent.
func (r *letterWriter) writeMarkedDead(ctx context.Context, b *stream.Batch) error {
	if b.Untouched() {
		return nil
	}
	return r.writeLetters(ctx, b, refuser{}, func(i int) (error, bool) {
		return b.Reason(i), b.Records[i].State == stream.Dead
	})
}

func (r *letterWriter) writeLetters(ctx context.Context, b *stream.Batch, by refuser,
	which func(i int) (error, bool)) error {
	var letters []stream.DeadLetter
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
		letters = append(letters, stream.DeadLetter{
			ID: string(b.AppendRecordID(nil, i)), Reason: text, Detail: detail,
			Partition: part.ID, File: part.Name, Position: rec.Origin, Record: b.Text(i),
			Attempts: by.attempts, Worker: by.worker,
		})
	}
	return r.write(ctx, letters)
}

// write appends letters to the dead-letter file, and counts and logs them.
func (r *letterWriter) write(ctx context.Context, letters []stream.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	if err := r.store.Append(ctx, letters); err != nil {
		return err
	}
	r.failures.countDeadLetters(letters, r.store.Path())
	return nil
}
