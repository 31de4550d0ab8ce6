package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// saver saves the route's progress in the checkpoint. It also reports the progress to the source,
// and to the sink if the sink keeps a ledger (its own record of the progress, in its database).
type saver struct {
	*core
	layers   *layeredStore            // set by prepare
	syncer   stream.AppendSink        // nil if the sink's acknowledged data is already durable
	ledgered stream.TransactionalSink // nil if the sink stores no progress
	slot     *slot
	waits    *waits
	saved    func(bytes int64)    // called with the number of bytes saved
	idle     func() time.Duration // how long the reader has waited for data

	reader  stream.Reader // set before Run
	resumed *resumed      // progress in the sink's ledger, used instead of the store's; may be nil

	// urgent wakes Run to write immediately. This is necessary when the unsaved bytes have reached
	// a quarter of checkpoint.replay, or when many partitions are new.
	urgent chan struct{}

	// syncedAt is the start of the last successful sync at the interval checkpoint.sync, in ns
	// since 1970; 0 if none.
	syncedAt atomic.Int64

	soon chan struct{} // wakes Run to write soon; nil if it must not

	deleted  []string // deleted partitions; used during saves only, one save at a time
	prunable []string // for the sink to delete, once deleted from the checkpoint
	// unreported has the progress that was saved since the last report to the source and the sink,
	// by partition id. It is nil if there is none.
	unreported map[string]stream.Mark

	toFinish []stream.Partition // settled partitions that the source must finish; core.mu guards it
}

// synced returns the start of the last successful sync at the interval checkpoint.sync, or the zero
// time if there was none.
func (r *saver) synced() time.Time {
	if at := r.syncedAt.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Run saves the progress until ctx ends. lastSave then saves the rest. Run does the following:
//
//   - Soon after records have settled, it reports them if clients of the source wait for that.
//     With other sources, it writes the checkpoint if writesSoon is true, and pauses between such
//     writes.
//   - Soon after the store of waiting batches has changed, it saves the store.
//   - When the unsaved bytes reach a quarter of checkpoint.replay, it writes at once. If a broker
//     assigns the partitions, it syncs instead.
//   - When manyParts partitions are new, it syncs at once.
//   - At every interval checkpoint.sync, it syncs the checkpoint to disk. Then the source may
//     finish (for example rename) settled files.
//
// A write may fail with an error that passes, such as a full disk. Run then retries it with growing
// waits. Meanwhile, deliveries stop when the unsaved bytes reach checkpoint.replay.
//
// After any other failure, Run returns the error. For example, after a failed sync neither the
// sink's data nor the log can be trusted. The route then ends and restarts from the checkpoint. In
// a finite run, Run returns the first error of any kind, and the route does not restart.
func (r *saver) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Checkpoint.Sync)
	defer tick.Stop()
	soon, waits := r.soon, r.waits.changed // set to nil during the pause
	pause := time.NewTimer(writePause)
	pause.Stop()
	defer pause.Stop()
	var state backoff.State
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
			soon, waits = r.soon, r.waits.changed
			continue
		case <-soon:
			if reader := settlerOf(r); reader != nil {
				err = reportSettled(ctx, r, reader)
				break
			}
			soon, waits = nil, nil
			var marks int
			marks, err = r.write()
			pause.Reset(max(r.layers.pause, time.Duration(marks)*markPause))
		case <-waits:
			soon, waits = nil, nil
			err = r.waits.save()
			pause.Reset(writePause)
		case <-r.urgent:
			if r.assigned != nil || r.hasManyParts() {
				err = r.assigned.save(ctx, r.sync)
				break
			}
			_, err = r.write()
		case <-tick.C:
			r.failures.reportDead(false)
			begun := time.Now()
			if err = r.assigned.save(ctx, r.sync); err == nil {
				state = backoff.State{}
				r.failures.recovered(part{name: "checkpoint"})
				r.syncedAt.Store(begun.UnixNano())
			}
		}
		if err != nil {
			if again, err := r.awaitRetry(ctx, err, &state); !again {
				return err
			}
		}
	}
}

// awaitRetry waits after a save has failed with err, until the next save may begin. If Run must end
// instead, awaitRetry returns false, and the result of Run.
func (r *saver) awaitRetry(ctx context.Context, err error, state *backoff.State) (bool, error) {
	_, retryable := errors.AsType[*retryableError](err)
	switch {
	case retryable && ctx.Err() != nil:
		return false, nil // lastSave saves the rest
	case !retryable || r.once || r.layers.failed():
		return false, err
	}
	var wait time.Duration
	wait, *state, _ = saveBackoff.Next(*state, nil)
	if times, due := r.failures.recordFailure(part{name: "checkpoint"}, firstLine(err)); due {
		r.host.log.Error("the progress could not be saved; retrying",
			"times", times, "again_in", wait, "error", err)
	}
	return retry.Sleep(ctx, wait) == nil, nil
}

// writePause is the pause after a write that follows soon after records have settled. If the
// process is killed, the records that settled during the pause are delivered again, like the
// batches in flight. The pause limits such writes to 200 a second, which cost little.
const writePause = 5 * time.Millisecond

// bucketPause is the pause after a write to the bucket of a cluster. It is longer than writePause,
// because each such write is a request to a server.
const bucketPause = 100 * time.Millisecond

// writesSoon reports whether the route writes the checkpoint soon after records have settled,
// instead of once every checkpoint.sync. It does so if a kill would otherwise repeat these records,
// and if a write does not need a sync of the sink first.
func (r *saver) writesSoon() bool {
	return r.ledgered == nil && r.assigned == nil && (r.syncer == nil || r.layers.layered())
}

// saveBackoff is the wait between failed attempts to save the progress and to report it to the
// source and the sink. A successful write alone does not reset the wait, because the report may
// still fail. Only a successful sync at the interval checkpoint.sync, which includes the report,
// resets it.
var saveBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Equal()

// After a write, the minimum pause is markPause times the number of marks in the write. A mark is
// the progress of a partition. Writing a mark takes some microseconds and up to 200 bytes of the
// log. Example: a thousand files grow. With a pause of only writePause, the writes would use 25 %
// of a core and write 15 MB/s. With markPause, the pause after a thousand marks is 200 ms, and the
// writes use 1 % of a core and write 1 MB/s.
const markPause = 200 * time.Microsecond

// A retryableError is the error of a save that the caller can retry. No progress is lost: the next
// save contains it again.
type retryableError struct{ err error }

// Error implements error.
func (e *retryableError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *retryableError) Unwrap() error { return e.err }

// writeOffAfter is the time after which missing records count as deleted. These are records that an
// earlier run has read and not settled, and that this run has not read again. The time begins when
// the reader begins to wait for data.
const writeOffAfter = 10 * time.Second

// take returns the progress that is not in the checkpoint. From then on, the accounts of the route
// (its books) count this progress as saved.
func (r *saver) take() saving {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle() > writeOffAfter {
		r.books.dropInherited()
	}
	s := r.books.takeUnsaved()
	r.toFinish = append(r.toFinish, s.finished...)
	return s
}

// restore undoes take after a failed save, and returns err as a retryableError.
func (r *saver) restore(s saving, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.books.restore(s)
	again := func(p stream.Partition) bool { // the next take returns them again
		return slices.ContainsFunc(s.finished, func(q stream.Partition) bool { return q.ID == p.ID })
	}
	r.toFinish = slices.DeleteFunc(r.toFinish, again)
	return &retryableError{err}
}

// lastSave saves the progress since the last save of Run. It also runs after the route has failed,
// so that delivered data is not delivered again. Nothing settles while it runs.
func (r *saver) lastSave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveBound)
	defer cancel()
	if err := r.assigned.save(ctx, r.sync); err != nil {
		return err
	}
	if err := r.assigned.save(ctx, r.sync); err != nil { // the first call finished partitions
		return err
	}
	return r.assigned.save(ctx, r.pruneAll)
}

// lastSaveBound is the maximum time of lastSave. It includes the sink's last sync and the last
// calls of Finish.
const lastSaveBound = 30 * time.Second

// write saves the settled progress so that it survives kill -9. It returns the number of
// partitions with saved progress.
func (r *saver) write() (marks int, err error) {
	s := r.take()
	if r.syncer != nil && !r.layers.layered() {
		if err := r.syncSink(context.Background()); err != nil {
			return len(s.marks), err
		}
	}
	return len(s.marks), r.append(s)
}

func (r *saver) append(s saving) error {
	if err := r.waits.save(); err != nil { // before the marks that depend on it
		return r.restore(s, err)
	}
	marks := s.marks
	if r.assigned != nil {
		marks = nil // the marks are stored by the source or the sink's ledger
	} else {
		r.addMetadata(marks)
	}
	if len(marks)+len(s.tokens) > 0 {
		if err := r.layers.save(marks, s.tokens); err != nil {
			return r.restore(s, fmt.Errorf("checkpoint: %w", err))
		}
	}
	for _, m := range s.marks {
		if r.unreported == nil {
			r.unreported = make(map[string]stream.Mark)
		}
		r.unreported[m.Part.ID] = m
	}
	if s.bytes > 0 {
		r.saved(s.bytes)
	}
	if r.resumed != nil {
		r.resumed.update(marks) // the accounts stay open, because prune uses handedOut
	} else if r.assigned == nil { // assigned accounts cannot be opened again
		r.mu.Lock()
		r.books.closeIdle(s.marks)
		r.mu.Unlock()
	}
	return nil
}

func (r *saver) syncSink(ctx context.Context) error {
	if err := r.syncer.Sync(ctx); err != nil {
		return fmt.Errorf("sink %s: sync: %w", r.cfg.Sink.Component.Name, err)
	}
	return nil
}

// sync saves the settled progress so that it survives a power loss. It syncs the sink and the
// checkpoint, and reports the progress to the source and to the sink's ledger. Then it lets the
// source finish the partitions that are settled to their end. Last, it removes the progress of
// deleted partitions from the ledger and the checkpoint.
func (r *saver) sync(ctx context.Context) error {
	if err := r.slot.pipe.state.present(r.slot.o.FS); err != nil {
		return err
	}
	if err := r.waits.sync(); err != nil {
		return err
	}
	s := r.take()
	if r.layers.layered() {
		if err := r.append(s); err != nil {
			return err
		}
	}
	if r.syncer != nil {
		if err := r.syncSink(ctx); err != nil {
			return err
		}
	}
	if !r.layers.layered() {
		if err := r.append(s); err != nil {
			return err
		}
	}
	if err := r.waits.sync(); err != nil { // before the source finishes data that no longer waits
		return err
	}
	if err := r.layers.synced(); err != nil {
		return &retryableError{fmt.Errorf("checkpoint: %w", err)}
	}
	if err := r.report(ctx); err != nil {
		s.bytes = 0 // the bytes are saved; only the marks must be reported again
		return r.restore(s, err)
	}
	r.mu.Lock()
	finish := r.toFinish
	r.toFinish = nil
	r.mu.Unlock()
	r.finish(ctx, finish)
	_ = r.prune(ctx) // prune has logged the failure; the next sync retries
	return r.forget()
}

// report reports to the source and the sink all progress that was saved since the last report. The
// progress must be durable.
func (r *saver) report(ctx context.Context) error {
	if len(r.unreported) == 0 {
		return nil
	}
	marks := slices.SortedFunc(maps.Values(r.unreported), func(a, b stream.Mark) int {
		return strings.Compare(a.Part.ID, b.Part.ID)
	})
	if marks = r.assigned.current(marks); len(marks) == 0 {
		r.unreported = nil
		return nil
	}
	for i := range marks {
		marks[i] = r.waits.limit(marks[i])
	}
	if reader := settlerOf(r); reader != nil {
		reader.Settled(marks)
	}
	folded := true
	if r.ledgered != nil {
		if err := r.ledgered.Compact(ctx, marks); err != nil {
			folded = false
			if ctx.Err() == nil { // otherwise the route is ending, and its last save merges them
				r.host.log.Warn("the sink could not merge its span rows; retrying", "error", err)
			}
		}
	}
	if r.assigned.commits() {
		if err := r.reader.Commit(ctx, marks); err != nil {
			return fmt.Errorf("source %s: commit: %w", r.source, err)
		}
	}
	r.assigned.stored(marks)
	if folded {
		r.unreported = nil
	}
	return nil
}

// finish lets the source finish the given partitions, for example rename files, and records the
// finished ones in the books.
func (r *saver) finish(ctx context.Context, parts []stream.Partition) {
	for _, p := range r.slot.pipe.finish(ctx, r.slot, parts...) {
		r.mu.Lock()
		r.books.finish(p.ID)
		r.mu.Unlock()
	}
}

// manyParts is the number of new partitions after which the checkpoint is synced at once, before
// the interval checkpoint.sync ends. The source uses some kilobytes of memory for each new file
// until it learns that the progress of the file is saved. In a folder of many small files, this
// memory would grow until the interval ends.
const manyParts = 4096

// wake wakes Run to save immediately if the unsaved bytes reach a quarter of checkpoint.replay, or
// if manyParts partitions are new. Otherwise it wakes Run to save soon if there is unsaved data. If
// the reader is a SettledReader (see settlerOf), it always wakes Run, so that Run soon reports the
// settled records to the reader.
func (r *saver) wake(unsaved int64, parts int) {
	if unsaved >= int64(r.cfg.Checkpoint.Replay)/4 || parts >= manyParts {
		wake(r.urgent)
	} else if unsaved > 0 {
		wake(r.soon) // does nothing if r.soon is nil
	}
	if settlerOf(r) != nil {
		wake(r.soon)
	}
}

// hasManyParts reports whether manyParts or more partitions are new since the last save.
func (r *saver) hasManyParts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.books.unsavedParts >= manyParts
}

// wake sends to a channel with a buffer of one, unless a value is already waiting.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// announce saves new partitions in the checkpoint before a sink with a ledger gets their data. The
// sink commits the data and the watermark of a partition id together, but only the checkpoint
// records which file belongs to this id. Without announce, a kill could come between the sink's
// commit and the first save of the checkpoint. The ledger would then have progress of an unknown
// file. If saving fails, the next save of Run includes the partitions.
func (r *saver) announce(met []stream.Mark, b *stream.Batch) {
	if r.ledgered == nil || r.assigned != nil || r.layers.layered() {
		return
	}
	to := make(map[string]stream.Position, len(met))
	for i := range b.Spans {
		to[b.Spans[i].Part.ID] = b.Spans[i].To
	}
	ahead := slices.Clone(met)
	for i := range ahead {
		ahead[i].Watermark = to[ahead[i].Part.ID]
	}
	r.addMetadata(ahead) // adds the metadata of the data that was read
	for i := range met {
		met[i].Metadata = ahead[i].Metadata
	}
	_ = r.layers.save(met, nil)
}

// saveToken saves the resume token with which the sink's only lane (worker) starts, before the lane
// gets data. A resume token is a position in the output, such as a file and its length. The
// argument saved has the resume tokens in the checkpoint.
//
// saveToken also removes the tokens of lanes with other names. Such tokens are left when the name
// of the output file was changed in the config. If the old name were used again later, the old
// token would truncate the file to the old offset.
func (r *saver) saveToken(saved map[string]string, lanes []stream.Lane) error {
	if r.syncer == nil || len(lanes) != 1 {
		return nil
	}
	tokens := r.layers.tokensToDelete(lanes[0].Name)
	if len(tokens) == 0 && saved[lanes[0].Name] == r.syncer.StartToken() {
		return nil
	}
	tokens[lanes[0].Name] = r.syncer.StartToken()
	if err := joined(r.layers.save(nil, tokens), r.layers.synced()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
