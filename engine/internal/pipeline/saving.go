package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// keeper keeps the route's positions: in the checkpoint, in the sink's ledger, and in the source.
type keeper struct {
	*core
	memory   *memory                  // set by prepare
	syncer   stream.AppendSink        // nil: what the sink has acked is durable
	ledgered stream.TransactionalSink // nil: the local checkpoint is the truth
	pipe     finishingPipe
	waits    *waits
	saved    func(bytes int64)    // called with what is saved
	idle     func() time.Duration // for how long the reader has waited for data

	reader  stream.Reader // set before Run
	resumed *resumed      // of a TransactionalSink: wins over the store; nil: it keeps none

	quarter chan struct{} // a quarter of the replay bound has settled: write now
	some    chan struct{} // something has settled: write soon; nil: a write is more than an append, or nobody needs it

	gone     []string               // partitions to be forgotten; the checkpoint's goroutine owns it, and
	prunable []string               // those that the sink may drop, once it is durable that they are forgotten, and
	untold   map[string]stream.Mark // by partition, what was saved since source and sink were told last; nil: nothing

	finisher []stream.Partition // synced and settled, to be finished by the source; core.mu guards it
}

// finishingPipe is the pipeline, for partitions that are settled.
type finishingPipe interface {
	// present reports whether the state directory is still there.
	present() error
	// stateName is the name of the state directory.
	stateName() string
	// finish tells that this route is done with partitions, and returns those that the source has
	// finished.
	finish(ctx context.Context, parts []stream.Partition) []stream.Partition
}

// Run writes the checkpoint whenever a quarter of the replay bound has settled, and as soon as
// anything has, with rests, where that is no more than an append; and it syncs it (and finishes
// partitions) at every interval. It ends with its context; lastSave does the rest.
//
// What can be written later (the disk is full, a broker does not answer) is tried again, with
// growing waits: nothing is lost meanwhile, and the replay bound stops the deliveries. Any other
// failure ends the route, which starts again from the checkpoint: a sink or a log that could not
// sync is not believed again.
func (r *keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Checkpoint.Sync)
	defer tick.Stop()
	some, waits := r.some, r.waits.changed // nil while rest runs
	rest := time.NewTimer(writeRest)
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
			rest.Reset(max(writeRest, time.Duration(marks)*markRest))
		case <-waits:
			some, waits = nil, nil
			err = r.waits.save()
			rest.Reset(writeRest)
		case <-r.quarter:
			if r.assigned != nil {
				err = r.assigned.save(ctx, r.sync)
				break
			}
			_, err = r.write()
		case <-tick.C:
			r.failures.reportDead(false)
			if err = r.assigned.save(ctx, r.sync); err == nil {
				state = backoff.State{}
			}
		}
		if err == nil {
			continue
		}
		if _, later := errors.AsType[*laterError](err); !later || r.once || r.memory.failed() {
			return err
		}
		wait, next, _ := saveBackoff.Next(state, nil)
		state = next
		if times, due := r.failures.note("checkpoint", firstLine(err)); due {
			r.host.log.Error("what has been delivered could not be saved; it is tried again",
				"times", times, "again_in", wait, "error", err)
		}
		if retry.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// writeRest is how long a write of what has settled, short of a quarter of the replay bound, is
// followed by none: of more than the batches in flight a kill repeats no more than what settles
// meanwhile. 200 appends a second are not to be seen in a profile.
const writeRest = 5 * time.Millisecond

// writesSoon says whether a kill repeats what is not written, and a write is no more than an append
// to the log.
func (r *keeper) writesSoon() bool {
	return r.ledgered == nil && r.assigned == nil && (r.syncer == nil || r.memory.layered())
}

// saveBackoff paces what is tried again until the checkpoint could be saved and all be told: a
// write that goes well says nothing of a broker.
var saveBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Equal()

// markRest is how much longer it rests for each mark that was written. A mark costs some
// microseconds and up to 200 bytes of the log: of a thousand files that all grow that would be a
// quarter of a core and 15 MB/s; so it is a hundredth, and 1 MB/s.
const markRest = 200 * time.Microsecond

// A laterError is a failure to save that left everything as it was.
type laterError struct{ err error }

// Error says what failed.
func (e *laterError) Error() string { return e.err.Error() }

// Unwrap returns it.
func (e *laterError) Unwrap() error { return e.err }

// forgiveAfter is how long a reader must have found nothing until what an earlier route had read
// counts as gone.
const forgiveAfter = 10 * time.Second

// take takes what has settled out of the books.
func (r *keeper) take() saving {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle() > forgiveAfter {
		r.books.forgive()
	}
	s := r.books.take()
	r.finisher = append(r.finisher, s.finished...)
	return s
}

// restore puts back what could not be saved.
func (r *keeper) restore(s saving, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.books.restore(s)
	again := func(p stream.Partition) bool { // the next take gives them again
		return slices.ContainsFunc(s.finished, func(q stream.Partition) bool { return q.ID == p.ID })
	}
	r.finisher = slices.DeleteFunc(r.finisher, again)
	return &laterError{err}
}

// lastSave writes what has settled since the checkpoint's goroutine ended; it runs also when the
// route stops with an error, because what was delivered should not be delivered again. Nothing is
// settled any more while it runs.
func (r *keeper) lastSave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveBound)
	defer cancel()
	if err := r.assigned.save(ctx, r.sync); err != nil {
		return err
	}
	if err := r.assigned.save(ctx, r.sync); err != nil { // the first one finished partitions; this one makes that known
		return err
	}
	return r.pruneAll(ctx)
}

// lastSaveBound bounds the sink's sync and the source's finishing of partitions at the end of a
// run.
const lastSaveBound = 30 * time.Second

// write makes what has settled safe against kill -9. It returns of how many partitions that was.
func (r *keeper) write() (marks int, err error) {
	s := r.take()
	if r.syncer != nil && !r.memory.layered() {
		if err := r.syncSink(context.Background()); err != nil {
			return len(s.marks), err
		}
	}
	return len(s.marks), r.append(s)
}

func (r *keeper) append(s saving) error {
	if err := r.waits.save(); err != nil { // before the marks that depend on it
		return r.restore(s, err)
	}
	marks := s.marks
	if r.assigned != nil {
		marks = nil // the source or the sink's ledger has them
	} else {
		r.note(marks)
	}
	if len(marks)+len(s.places) > 0 {
		if err := r.memory.save(marks, s.places); err != nil {
			return r.restore(s, fmt.Errorf("checkpoint: %w", err))
		}
	}
	for _, m := range s.marks {
		if r.untold == nil {
			r.untold = make(map[string]stream.Mark)
		}
		r.untold[m.Part.ID] = m
	}
	if s.bytes > 0 {
		r.saved(s.bytes)
	}
	if r.resumed == nil && r.assigned == nil { // else marks are what the sink said at the start
		r.mu.Lock()
		r.books.rest(s.marks)
		r.mu.Unlock()
	}
	return nil
}

func (r *keeper) syncSink(ctx context.Context) error {
	if err := r.syncer.Sync(ctx); err != nil {
		return fmt.Errorf("sink %s: sync: %w", r.cfg.Sink.Component.Name, err)
	}
	return nil
}

// sync makes what has settled safe against a power loss: first the sink's data, then the
// checkpoint, then the source is told.
func (r *keeper) sync(ctx context.Context) error {
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
	if err := r.waits.sync(); err != nil { // before the source finishes data that has just stopped waiting
		return err
	}
	if err := r.memory.synced(); err != nil {
		return &laterError{fmt.Errorf("checkpoint: %w", err)}
	}
	if err := r.tell(ctx); err != nil {
		s.bytes = 0 // they are saved; the marks are told again
		return r.restore(s, err)
	}
	r.mu.Lock()
	finish := r.finisher
	r.finisher = nil
	r.mu.Unlock()
	r.finish(ctx, finish)
	_ = r.prune(ctx) // it was said, and is tried again
	return r.forget()
}

// tell lets source and sink know what is durable here: all that was saved since they were told
// last, by write, too.
func (r *keeper) tell(ctx context.Context) error {
	if len(r.untold) == 0 {
		return nil
	}
	marks := slices.SortedFunc(maps.Values(r.untold), func(a, b stream.Mark) int { return strings.Compare(a.Part.ID, b.Part.ID) })
	if marks = r.assigned.current(marks); len(marks) == 0 {
		r.untold = nil
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
			if ctx.Err() == nil { // else the route ends, and its last save folds them
				r.host.log.Warn("the sink could not fold its span rows; it is tried again", "error", err)
			}
		}
	}
	if err := r.reader.Commit(ctx, marks); err != nil {
		return fmt.Errorf("source %s: commit: %w", r.source, err)
	}
	r.assigned.stored(marks)
	if folded {
		r.untold = nil
	}
	return nil
}

// finish has the source finish partitions, and notes those that it has.
func (r *keeper) finish(ctx context.Context, parts []stream.Partition) {
	for _, p := range r.pipe.finish(ctx, parts) {
		r.mu.Lock()
		r.books.finish(p.ID)
		r.mu.Unlock()
	}
}

// wake wakes Run when so many bytes have settled and are not saved.
func (r *keeper) wake(unsaved int64) {
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

// announce saves marks of partitions that nobody had one of, before the sink gets anything of them.
// A kill may come between the sink's commit and the first time that the checkpoint is saved: the
// sink then says how much of a file it has, and only the checkpoint which file that was. What
// cannot be saved now, the checkpoint's goroutine saves, or reports.
func (r *keeper) announce(met []stream.Mark, b *stream.Batch) {
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
	r.note(ahead) // of what was read
	for i := range met {
		met[i].Note = ahead[i].Note
	}
	_ = r.memory.save(met, nil)
}

// savePlace makes durable where the sink's ordered lane starts, before anything is delivered to it.
// saved is what the checkpoint has. Places of lanes of other names are forgotten: the file may have
// been renamed, config and all, and a start to come would truncate it to where it stood then.
func (r *keeper) savePlace(saved map[string]string, lanes []stream.Lane) error {
	if r.syncer == nil || len(lanes) != 1 {
		return nil
	}
	places := r.memory.strays(lanes[0].Name)
	if len(places) == 0 && saved[lanes[0].Name] == r.syncer.StartPlace() {
		return nil
	}
	places[lanes[0].Name] = r.syncer.StartPlace()
	if err := joined(r.memory.save(nil, places), r.memory.synced()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
