package follow

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
)

// In a finite run (Once): the number of attempts to read an unreadable file, and the longest wait
// for files that are still being written. This wait is a multiple of Options.Settle, but at least
// finalWaitMin.
const (
	onceTries       = 3
	finalWaitSettle = 10
	finalWaitMin    = 10 * time.Second
)

// activity is the current activity of a route with its reader.
type activity uint8

const (
	stalled activity = iota // the route does not call Read
	reading                 // Read is running
	waiting                 // Read waits, and lists the files itself
	absent                  // the route is not open; the reader has its progress (SourceHost.Progress)
	done                    // Read has returned io.EOF
	gone                    // the reader is closed
)

// Reader hands out the data of a catalogue's files to one route. It has a cursor in each file, and
// a queue of the files to process. It implements stream.Reader, Estimator and PartitionTracker.
type Reader struct {
	// Origin adds the fields of the option meta. It must be set before the first Read. Nil means
	// that there are none.
	Origin *origin.Adder

	c        *Catalogue
	o        stream.OpenOptions
	marked   bool // the route has stored anything
	opened   bool // Open has returned it; otherwise it stands for a route that is not open
	activity activity
	wake     chan struct{} // a notification came
	listed   chan struct{} // another reader, or the catalogue, has listed the files
	notes    notes
	forgets  forgets

	filler filler
	// the first successful listing that the reader has seen; 0 if there was none
	first       uint32
	queue       []*file   // files to process, in order
	queuedAt    uint32    // the listing of the queue
	lostCursors []*cursor // of lost files: only their seals are still to be handed out
	left        atomic.Int64
	target      int64         // bytes that make a batch
	finalWait   time.Duration // Once: since when only files that are still written are left

	// stored settled positions of files that grew; guarded by identities.mu
	saved map[string]int64
	// partitions that the route has read to their ends. The value is true if this is saved.
	// Guarded by identities.mu
	done map[string]bool
	// ends of files that are no longer followed; guarded by identities.mu
	unsaved map[string]readEnd

	newlyFinished []string    // partitions that are stored as finished; guarded by identities.mu
	fresh         atomic.Bool // progress was stored since the last look
	// time since which every listing has found bytes to read; 0 if the last listing has found
	// none
	busy time.Duration
}

func newReader(c *Catalogue, o stream.OpenOptions) *Reader {
	return &Reader{
		c: c, o: o, wake: make(chan struct{}, 1), listed: make(chan struct{}, 1), saved: make(map[string]int64),
		notes: notes{byID: make(map[string]*note)}, forgets: forgets{stored: make(map[string]bool)},
		filler: filler{Filler: lines.Filler{Rules: c.o.Rules}}, done: make(map[string]bool),
		unsaved: make(map[string]readEnd),
	}
}

func (r *Reader) count(name string, n int64) {
	if r.o.Count != nil {
		r.o.Count(name, n)
		return
	}
	r.c.h.Count(name, n)
}

// Remaining implements stream.Estimator. It returns the unread bytes of the files as last listed.
func (r *Reader) Remaining() int64 { return max(0, r.left.Load()) }

// Input implements stream.InputReader. Its result is a hash of the label, size, modification time
// and inode of each file that is to be read.
func (r *Reader) Input() (uint64, error) {
	var sum uint64 // of the files' hashes, since a listing has no order
	err := r.c.place.List(func(f Listed) {
		h := fnv.New64a()
		fmt.Fprintf(h, "%q %d %d %d", f.Label, f.Info.Size, f.Info.ModTime.UnixNano(), f.Info.Ino)
		sum += h.Sum64()
	}, func(string, string) {})
	return sum, err
}

// Read implements stream.Reader.
func (r *Reader) Read(ctx context.Context, b *stream.Batch) error {
	err := r.readBatch(ctx, b)
	if err == nil || err == io.EOF {
		r.Origin.Add(b)
	}
	return err
}

func (r *Reader) readBatch(ctx context.Context, b *stream.Batch) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.activity = reading
	err := r.read(ctx, b)
	if r.activity = stalled; err == io.EOF {
		r.activity = done
	}
	return err
}

// read is Read with the lock held, without the fields of origin.
func (r *Reader) read(ctx context.Context, b *stream.Batch) error {
	c, begun := r.c, r.c.now()
	r.target = int64(b.Limits().Bytes)
	r.forgets.publish()
	for {
		if ctx.Err() != nil {
			return r.cutShort(b, context.Cause(ctx))
		}
		if full, err := r.fill(ctx, b); err != nil {
			return r.cutShort(b, err)
		} else if full {
			r.filler.Complete(b)
			return nil
		}
		now := c.now()
		if len(b.Spans) == 0 {
			begun = now
			r.forgets.publish()
		}
		wait := r.untilListing(now)
		if len(b.Spans) > 0 {
			left := begun + r.o.Linger - now
			// all existing files were listed: waiting would bring nothing
			if left <= 0 || r.o.Once {
				r.filler.Complete(b)
				return nil
			}
			wait = min(wait, left)
		}
		if wait > 0 {
			if err := r.sleep(ctx, wait); err != nil {
				return r.cutShort(b, err)
			}
			if r.queuedAt != c.table.scans || c.now() < c.pace.listed+c.pace.spacing() {
				continue
			}
		}
		c.list(r)
		if len(r.queue)+len(r.lostCursors) == 0 && len(b.Spans) == 0 &&
			(r.o.Once || c.over != nil) {
			if end, err := r.ended(); end {
				r.forgets.publish() // a first listing that is also the last may have found some
				return err
			}
		}
	}
}

// cutShort ends a Read after the end of its ctx. If b has data, Read returns this data without an
// error, because the next Read resumes after it. Otherwise Read returns cause.
func (r *Reader) cutShort(b *stream.Batch, cause error) error {
	if len(b.Spans) > 0 {
		r.filler.Complete(b)
		return nil
	}
	r.filler.Discard()
	return cause
}

// fill fills b from the queued files. It returns true once b is complete, and false if nothing is
// left to do before that.
func (r *Reader) fill(ctx context.Context, b *stream.Batch) (bool, error) {
	r.c.dormant.retire()
	r.c.table.compact()
	if r.c.table.scans > 0 && r.queuedAt != r.c.table.scans {
		r.enqueue(r.c.now())
	}
	for {
		for ; len(r.lostCursors) > 0; r.lostCursors = r.lostCursors[1:] {
			if !r.sealLost(b, r.lostCursors[0]) {
				return true, nil
			}
		}
		if len(r.queue) == 0 {
			return b.Full(), nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if stay := r.take(b, r.queue[0]); stay {
			return true, nil
		}
		r.queue[0] = nil
		r.queue = r.queue[1:]
	}
}

// enqueue queues all files in which the route has something to do, in the order in which they are
// read.
func (r *Reader) enqueue(now time.Duration) {
	r.queuedAt = r.c.table.scans
	r.queue = r.c.lister.filesToRead(r, now)
	r.measure()
}

// measure updates the number of bytes that the route has not read.
func (r *Reader) measure() {
	left := int64(0)
	for _, f := range r.c.table.byLabel {
		left += r.leftOf(f)
	}
	r.left.Store(left)
}

// leftOf returns how much of a file the route has not read.
func (r *Reader) leftOf(f *file) int64 {
	if f.entry == nil && !f.isEmpty() {
		return f.info.Size
	}
	if cur := f.by(r); cur != nil {
		return cur.left()
	}
	return 0
}

// untilListing returns how long the next listing can wait.
func (r *Reader) untilListing(now time.Duration) time.Duration {
	if r.c.table.scans == 0 || r.queuedAt != r.c.table.scans {
		return 0
	}
	return r.c.pace.next(r.o.Once && r.hasReadAll()) - now
}

// sleep returns after d, or earlier if a notification asks for a listing, or if another goroutine
// has listed the files. It releases Catalogue.mu while it waits.
func (r *Reader) sleep(ctx context.Context, d time.Duration) error {
	r.activity = waiting
	soonest := r.c.pace.listed + r.c.pace.spacing()
	r.c.mu.Unlock()
	defer func() {
		r.c.mu.Lock()
		r.activity = reading
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	wake, listed := r.wake, r.listed
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-listed:
			return nil
		case <-t.C:
			return nil
		case <-wake:
			wake, listed = nil, nil
			t.Reset(min(d, max(0, soonest-r.c.now())))
		}
	}
}

// Commit implements stream.Reader. Among other things, it records the position up to which the data
// is settled, for each file that has grown after it was handed out completely. The file may be
// finished only when all of it is settled.
func (r *Reader) Commit(ctx context.Context, marks []stream.Mark) error {
	r.notes.save(marks)
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	r.fresh.Store(true)
	for _, m := range marks {
		if m.Finished && r.c.o.Keep {
			r.newlyFinished = append(r.newlyFinished, m.Part.ID)
		}
		if _, ok := r.done[m.Part.ID]; ok && m.Finished {
			r.done[m.Part.ID] = true
		}
		if end, ok := r.unsaved[m.Part.ID]; ok && m.Watermark.Num >= end.to {
			delete(r.unsaved, m.Part.ID)
		}
		if _, ok := r.saved[m.Part.ID]; ok && len(m.Above) == 0 {
			r.saved[m.Part.ID] = m.Watermark.Num
		}
	}
	return nil
}

// Close implements stream.Reader. While [Catalogue.Run] runs, the files stay open for the next
// reader of the route. Until that reader is opened, r stands for the route in the catalogue, with
// the saved progress.
func (r *Reader) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.activity == done {
		r.c.finishedRoutes = append(r.c.finishedRoutes, r.o.Route)
	}
	if r.c.running && r.activity != gone && r.activity != done {
		r.activity = absent
		if h, ok := r.c.h.(stream.SourceHost); ok {
			if o, err := h.Progress(r.o.Route); err == nil { // else the next reader has it
				r.o.Resume, r.o.Known = o.Resume, o.Known
			}
		}
		return nil
	}
	return r.c.leave(r)
}
