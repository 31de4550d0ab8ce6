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

// saver saves the route's progress: in the checkpoint, in the sink's ledger, and in the
// source.
type saver struct {
	*core
	memory   *layeredStore            // set by prepare
	syncer   stream.AppendSink        // nil if acknowledged data is durable
	ledgered stream.TransactionalSink // nil if progress is kept only in the local checkpoint
	pipe     finishingPipe
	waits    *waits
	saved    func(bytes int64)    // called with the number of bytes saved
	idle     func() time.Duration // how long the reader has waited for data

	reader  stream.Reader // set before Run
	resumed *resumed      // of a TransactionalSink: takes precedence over the store; nil for other sinks

	// quarter wakes Run to write immediately, because a quarter of the replay bound has settled or
	// many partitions are new.
	quarter chan struct{}

	syncedAt atomic.Int64 // beginning of the last sync that succeeded, in ns since 1970; 0: none yet

	some chan struct{} // wakes Run to write soon; nil if Run must not write early

	deleted  []string // partitions to forget, for the checkpoint's goroutine only
	prunable []string // for the sink to remove, once deleted from the checkpoint
	// unreported has, by partition, progress that was saved since the last report to source and
	// sink. It is nil if there is none.
	unreported map[string]stream.Mark

	finisher []stream.Partition // settled partitions for the source to finish; core.mu guards it
}

// synced returns the beginning of the last sync that succeeded; zero if there was none.
func (r *saver) synced() time.Time {
	if at := r.syncedAt.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// finishingPipe is the part of the pipeline that its savers use.
type finishingPipe interface {
	// present returns an error if the state directory has been deleted or replaced.
	present() error
	// resetCommand returns the command with which an operator makes a route deliver everything
	// again.
	resetCommand(route string) string
	// finish reports that this route has settled partitions, and returns those that the source has
	// finished.
	finish(ctx context.Context, parts []stream.Partition) []stream.Partition
}

// Run writes the checkpoint whenever a quarter of the replay bound has settled. If a write is only
// an append, Run also writes soon after anything has settled, with pauses between the writes. At
// every interval it syncs the checkpoint and finishes partitions. It ends with its context;
// lastSave does the rest.
//
// Writes that may succeed later, for example after a full disk, are retried with growing waits. No
// data is lost meanwhile, and the replay bound stops deliveries. Any other failure ends the route,
// which restarts from the checkpoint. The reason is that after a failed sync neither the sink nor
// the log can be trusted.
func (r *saver) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Checkpoint.Sync)
	defer tick.Stop()
	some, waits := r.some, r.waits.changed // nil during the pause
	rest := time.NewTimer(writePause)
	rest.Stop()
	defer rest.Stop()
	var state backoff.State
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
			some, waits = r.some, r.waits.changed
			continue
		case <-some:
			if reader := settlerOf(r); reader != nil {
				err = reportSettled(ctx, r, reader)
				break
			}
			some, waits = nil, nil
			var marks int
			marks, err = r.write()
			rest.Reset(max(r.memory.pause, time.Duration(marks)*markPause))
		case <-waits:
			some, waits = nil, nil
			err = r.waits.save()
			rest.Reset(writePause)
		case <-r.quarter:
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
				r.syncedAt.Store(begun.UnixNano())
			}
		}
		if err == nil {
			continue
		}
		_, later := errors.AsType[*laterError](err)
		switch {
		case later && ctx.Err() != nil:
			return nil // the run ends, and lastSave saves the rest
		case !later || r.once || r.memory.failed():
			return err
		}
		wait, next, _ := saveBackoff.Next(state, nil)
		state = next
		if times, due := r.failures.recordFailure("checkpoint", firstLine(err)); due {
			r.host.log.Error("the progress could not be saved; retrying",
				"times", times, "again_in", wait, "error", err)
		}
		if retry.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// writePause is the pause after a write of less than a quarter of the replay bound. A kill repeats
// in-flight batches, and those that settle during the pause. The cost of 200 appends a second is
// negligible.
const writePause = 5 * time.Millisecond

// bucketPause is the pause after a write to the bucket of a cluster. It is longer than writePause,
// because such a write is a request to a server.
const bucketPause = 100 * time.Millisecond

// writesSoon reports whether the route writes soon after a settlement. This is so if a kill would
// repeat the unwritten progress, and if a write only appends to the log.
func (r *saver) writesSoon() bool {
	return r.ledgered == nil && r.assigned == nil && (r.syncer == nil || r.memory.layered())
}

// saveBackoff paces the retries until the checkpoint is saved and source and sink have the
// progress. A successful write does not reset it, because the failure may be the broker's.
var saveBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Equal()

// markPause is the least pause for each mark written, because a mark costs some microseconds and
// up to 200 bytes of the log. For example, pauses of writePause alone would cost 25 % of a core and
// 15 MB/s with a thousand growing files. With markPause it is 1 % and 1 MB/s.
const markPause = 200 * time.Microsecond

// A laterError is a failure to save that changed nothing and can be retried.
type laterError struct{ err error }

// Error implements error.
func (e *laterError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *laterError) Unwrap() error { return e.err }

// writeOffAfter is the time for which a reader must have found no data before unsettled records of
// an earlier route count as deleted.
const writeOffAfter = 10 * time.Second

// take takes the progress that is not in the checkpoint from the books.
func (r *saver) take() saving {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle() > writeOffAfter {
		r.books.dropInherited()
	}
	s := r.books.takeUnsaved()
	r.finisher = append(r.finisher, s.finished...)
	return s
}

// restore returns progress to the books after a failed save.
func (r *saver) restore(s saving, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.books.restore(s)
	again := func(p stream.Partition) bool { // the next take returns them again
		return slices.ContainsFunc(s.finished, func(q stream.Partition) bool { return q.ID == p.ID })
	}
	r.finisher = slices.DeleteFunc(r.finisher, again)
	return &laterError{err}
}

// lastSave writes the progress since the end of Run. It also runs when the route stops with an
// error, so that delivered data is not delivered again. Nothing settles while it runs.
func (r *saver) lastSave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveBound)
	defer cancel()
	if err := r.assigned.save(ctx, r.sync); err != nil {
		return err
	}
	if err := r.assigned.save(ctx, r.sync); err != nil { // the first call finished partitions; this one records that
		return err
	}
	return r.assigned.save(ctx, r.pruneAll)
}

// lastSaveBound bounds the sink's last sync and the last calls of Finish.
const lastSaveBound = 30 * time.Second

// write makes settled progress safe against kill -9. It returns the number of marks written.
func (r *saver) write() (marks int, err error) {
	s := r.take()
	if r.syncer != nil && !r.memory.layered() {
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
		marks = nil // the source or the sink's ledger stores the marks
	} else {
		r.addMetadata(marks)
	}
	if len(marks)+len(s.places) > 0 {
		if err := r.memory.save(marks, s.places); err != nil {
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
	if r.resumed == nil && r.assigned == nil { // otherwise the sink reported the marks at the start
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

// sync makes settled progress safe against a power loss. It syncs the sink's data and then the
// checkpoint, and reports the progress to the source.
func (r *saver) sync(ctx context.Context) error {
	if err := r.pipe.present(); err != nil {
		return err
	}
	if err := r.waits.sync(); err != nil {
		return err
	}
	s := r.take()
	if r.memory.layered() {
		if err := r.append(s); err != nil {
			return err
		}
	}
	if r.syncer != nil {
		if err := r.syncSink(ctx); err != nil {
			return err
		}
	}
	if !r.memory.layered() {
		if err := r.append(s); err != nil {
			return err
		}
	}
	if err := r.waits.sync(); err != nil { // before the source finishes data that no longer waits
		return err
	}
	if err := r.memory.synced(); err != nil {
		return &laterError{fmt.Errorf("checkpoint: %w", err)}
	}
	if err := r.report(ctx); err != nil {
		s.bytes = 0 // the bytes are saved; only the marks must be reported again
		return r.restore(s, err)
	}
	r.mu.Lock()
	finish := r.finisher
	r.finisher = nil
	r.mu.Unlock()
	r.finish(ctx, finish)
	_ = r.prune(ctx) // prune has logged the failure; the next sync retries
	return r.forget()
}

// report reports all progress saved since the last report, including that saved by write, to the
// source and the sink. The progress must be durable.
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
			if ctx.Err() == nil { // otherwise the route is ending, and its last save folds them
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

// finish asks the source to finish partitions, and records those that it has finished.
func (r *saver) finish(ctx context.Context, parts []stream.Partition) {
	for _, p := range r.pipe.finish(ctx, parts) {
		r.mu.Lock()
		r.books.finish(p.ID)
		r.mu.Unlock()
	}
}

// manyParts is the number of new partitions after which the checkpoint is synced early. In a folder
// of small files, the source uses some kilobytes of memory for each file until it learns that the
// file is saved.
const manyParts = 4096

// wake wakes Run if enough bytes have settled, or enough new partitions were opened, since the last
// save.
func (r *saver) wake(unsaved int64, parts int) {
	if unsaved >= int64(r.cfg.Checkpoint.Replay)/4 || parts >= manyParts {
		wake(r.quarter)
	} else if unsaved > 0 {
		wake(r.some) // nil if progress is not written soon
	}
	if settlerOf(r) != nil {
		wake(r.some)
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

// announce saves the first marks of new partitions before the sink gets their data. A kill may
// occur after the sink's commit and before the first save of the checkpoint. The sink then has the
// progress of a partition, but only the checkpoint records which file the partition is. If saving
// fails here, the checkpoint's goroutine retries it or reports the error.
func (r *saver) announce(met []stream.Mark, b *stream.Batch) {
	to := make(map[string]stream.Position, len(met))
	for i := range b.Spans {
		to[b.Spans[i].Part.ID] = b.Spans[i].To
	}
	if r.ledgered == nil || r.assigned != nil || r.memory.layered() {
		return
	}
	ahead := slices.Clone(met)
	for i := range ahead {
		ahead[i].Watermark = to[ahead[i].Part.ID]
	}
	r.addMetadata(ahead) // metadata of the data read
	for i := range met {
		met[i].Metadata = ahead[i].Metadata
	}
	_ = r.memory.save(met, nil)
}

// saveToken makes the resume token with which the sink's ordered lane starts durable before the
// lane gets data. saved has the resume tokens in the checkpoint. Tokens of lanes with other names
// are removed, because the output file and its name in the config may have been changed. Otherwise
// a later start with the old name would truncate the file to the old offset.
func (r *saver) saveToken(saved map[string]string, lanes []stream.Lane) error {
	if r.syncer == nil || len(lanes) != 1 {
		return nil
	}
	places := r.memory.unknownRoutes(lanes[0].Name)
	if len(places) == 0 && saved[lanes[0].Name] == r.syncer.StartToken() {
		return nil
	}
	places[lanes[0].Name] = r.syncer.StartToken()
	if err := joined(r.memory.save(nil, places), r.memory.synced()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
