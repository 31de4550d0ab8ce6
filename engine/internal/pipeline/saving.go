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

// save writes the checkpoint whenever a quarter of the replay bound has settled, and as soon as anything has, with rests, where that
// is no more than an append; and it syncs it (and finishes partitions) at every interval. It ends with its context; lastSave does the rest.
//
// What can be written later (the disk is full, a broker does not answer) is tried again, with growing waits: nothing is lost
// meanwhile, and the replay bound stops the deliveries. Any other failure ends the route, which starts again from the
// checkpoint: a sink or a log that could not sync is not believed again.
func (r *route) save(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Checkpoint.Sync)
	defer tick.Stop()
	some, waits := r.some, r.memory.waits.changed // nil while rest runs
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
			some, waits = r.some, r.memory.waits.changed
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
			err = r.memory.waits.save()
			rest.Reset(writeRest)
		case <-r.quarter:
			_, err = r.write()
		case <-tick.C:
			r.failures.reportDead(false)
			if err = r.sync(ctx); err == nil {
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

// writeRest is how long a write of what has settled, short of a quarter of the replay bound, is followed by none: of more than the
// batches in flight a kill repeats no more than what settles meanwhile. 200 appends a second are not to be seen in a profile.
const writeRest = 5 * time.Millisecond

// writesSoon says whether a kill repeats what is not written, and a write is no more than an append to the log.
func (r *route) writesSoon() bool {
	return r.ledgered == nil && (r.syncer == nil || r.memory.layered())
}

// saveBackoff paces what is tried again until the checkpoint could be saved and all be told: a write that goes well says nothing of a
// broker.
var saveBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Equal()

// markRest is how much longer it rests for each mark that was written. A mark costs some microseconds and up to 200 bytes of the log: of a
// thousand files that all grow that would be a quarter of a core and 15 MB/s; so it is a hundredth, and 1 MB/s.
const markRest = 200 * time.Microsecond

// A laterError is a failure to save that left everything as it was.
type laterError struct{ err error }

// Error says what failed.
func (e *laterError) Error() string { return e.err.Error() }

// Unwrap returns it.
func (e *laterError) Unwrap() error { return e.err }

// forgiveAfter is how long a reader must have found nothing until what an earlier route had read counts as gone.
const forgiveAfter = 10 * time.Second

// take takes what has settled out of the books.
func (r *route) take() saving {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := r.reading.Load(); since > 0 && time.Since(r.started)-time.Duration(since) > forgiveAfter {
		r.books.forgive()
	}
	s := r.books.take()
	r.finisher = append(r.finisher, s.finished...)
	return s
}

// restore puts back what could not be saved.
func (r *route) restore(s saving, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.books.restore(s)
	again := func(p stream.Partition) bool { // the next take gives them again
		return slices.ContainsFunc(s.finished, func(q stream.Partition) bool { return q.ID == p.ID })
	}
	r.finisher = slices.DeleteFunc(r.finisher, again)
	return &laterError{err}
}

// lastSave writes what has settled since the checkpoint's goroutine ended; it runs also when the route stops
// with an error, because what was delivered should not be delivered again. Nothing is settled any more while
// it runs.
func (r *route) lastSave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveBound)
	defer cancel()
	if err := r.sync(ctx); err != nil {
		return err
	}
	if err := r.sync(ctx); err != nil { // the first one finished partitions; this one makes that known
		return err
	}
	return r.pruneAll(ctx)
}

// lastSaveBound bounds the sink's sync and the source's finishing of partitions at the end of a run.
const lastSaveBound = 30 * time.Second

// write makes what has settled safe against kill -9. It returns of how many partitions that was.
func (r *route) write() (marks int, err error) {
	s := r.take()
	if r.syncer != nil && !r.memory.layered() {
		if err := r.syncSink(context.Background()); err != nil {
			return len(s.marks), err
		}
	}
	return len(s.marks), r.append(s)
}

func (r *route) append(s saving) error {
	if err := r.memory.waits.save(); err != nil { // before the marks that depend on it
		return r.restore(s, err)
	}
	r.note(s.marks)
	if err := r.memory.save(s.marks, s.places); err != nil {
		return r.restore(s, fmt.Errorf("checkpoint: %w", err))
	}
	for _, m := range s.marks {
		if r.untold == nil {
			r.untold = make(map[string]stream.Mark)
		}
		r.untold[m.Part.ID] = m
	}
	if s.bytes > 0 {
		r.sender.Saved(s.bytes)
	}
	if r.resumed == nil { // else marks are what the sink said at the start
		r.mu.Lock()
		r.books.rest(s.marks)
		r.mu.Unlock()
	}
	return nil
}

func (r *route) syncSink(ctx context.Context) error {
	if err := r.syncer.Sync(ctx); err != nil {
		return fmt.Errorf("sink %s: sync: %w", r.cfg.Sink.Component.Name, err)
	}
	return nil
}

// sync makes what has settled safe against a power loss: first the sink's data, then the checkpoint, then the
// source is told.
func (r *route) sync(ctx context.Context) error {
	if err := r.pipe.state.present(r.host.FS()); err != nil {
		return err
	}
	if err := r.memory.waits.sync(); err != nil {
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

// tell lets source and sink know what is durable here: all that was saved since they were told last, by write, too.
func (r *route) tell(ctx context.Context) error {
	if len(r.untold) == 0 {
		return nil
	}
	marks := slices.SortedFunc(maps.Values(r.untold), func(a, b stream.Mark) int { return strings.Compare(a.Part.ID, b.Part.ID) })
	for i := range marks {
		marks[i] = r.memory.waits.limit(marks[i])
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
		return fmt.Errorf("source %s: commit: %w", r.pipe.cfg.Source.Component.Name, err)
	}
	if folded {
		r.untold = nil
	}
	return nil
}

// finish tells the pipeline that this route has done with partitions, and notes those that the source has finished.
func (r *route) finish(ctx context.Context, parts []stream.Partition) {
	for _, p := range parts {
		r.pipe.routeFinished(r.slot, p)
	}
	for _, p := range r.pipe.finish(ctx, r.slot) {
		r.mu.Lock()
		r.books.finish(p.ID)
		r.mu.Unlock()
	}
}

// finishing is a partition on its way to being finished by the source.
type finishing struct {
	part  stream.Partition
	done  map[*slot]bool
	state backoff.State
	next  time.Time // when Finish may be tried again
	told  bool
}

// routeFinished notes that the route r has settled p wholly, durably.
func (p *pipe) routeFinished(r *slot, part stream.Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.finishing[part.ID]
	if f == nil {
		f = &finishing{part: part, done: make(map[*slot]bool)}
		p.finishing[part.ID] = f
		p.order = append(p.order, part.ID)
	}
	f.done[r] = true
}

// finish calls the source's Finish for each partition that every route has done with and returns those that
// are finished for the route r.
func (p *pipe) finish(ctx context.Context, r *slot) []stream.Partition {
	var out []stream.Partition
	for _, f := range p.due(time.Now()) {
		if p.finisher != nil {
			if err := p.finisher.Finish(ctx, f.part); err != nil {
				p.notFinished(f, err)
				continue
			}
		}
		p.mu.Lock()
		f.told = true
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.order[:0]
	for _, id := range p.order {
		f := p.finishing[id]
		if f.told && f.done[r] {
			out = append(out, f.part)
			delete(f.done, r)
		}
		if f.told && len(f.done) == 0 {
			delete(p.finishing, id)
			continue
		}
		kept = append(kept, id)
	}
	p.order = kept
	return out
}

// due returns the partitions whose Finish may be tried now, and claims them until it is over.
func (p *pipe) due(now time.Time) []*finishing {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*finishing
	for _, id := range p.order {
		f := p.finishing[id]
		if !f.told && len(f.done) == len(p.slots) && !now.Before(f.next) {
			f.next = now.Add(finishClaim)
			out = append(out, f)
		}
	}
	return out
}

// finishClaim keeps a second route's goroutine off a partition that is just being finished.
const finishClaim = time.Minute

var finishBackoff = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Full()

func (p *pipe) notFinished(f *finishing, err error) {
	p.mu.Lock()
	wait, next, _ := finishBackoff.Next(f.state, nil)
	f.state, f.next = next, time.Now().Add(wait)
	p.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		p.log.Warn("a file is delivered and could not be finished; it is tried again", "file", f.part.Name, "again_in", wait, "error", err)
	}
}
