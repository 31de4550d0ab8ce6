package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Once: how often a file is tried that cannot be read, and how many times settle (but at least endgameMin) a file that is still
// written is waited for.
const (
	onceTries     = 3
	endgameSettle = 10
	endgameMin    = 10 * time.Second
)

// attendance is what a route does with its reader.
type attendance uint8

const (
	stalled attendance = iota // the route does not call Read
	reading                   // Read is running
	waiting                   // Read waits, and lists the files itself
	absent                    // the route waits for its restart, or was not started yet
	done                      // Read has returned io.EOF
	gone                      // the reader is closed
)

// Reader hands out the files of a catalogue to one route: its cursors, and the queue of files in which they have something
// to do. It implements stream.Reader, Estimator and PartitionTracker.
type Reader struct {
	c          *Catalogue
	o          stream.OpenOptions
	marked     bool // the route has stored anything
	attendance attendance
	wake       chan struct{} // a notification came
	listed     chan struct{} // another reader, or the catalogue, has listed the files
	notes      notes
	forgets    forgets

	filler   filler
	first    uint32    // the first listing that the reader has seen and that did not fail; 0: there was none
	queue    []*file   // what there is to do, in order
	queuedAt uint32    // the listing of the queue
	ghosts   []*cursor // of lost files: only their seals are left to be handed out
	waits    []*cursor // of those, the ones that wait until their copies could be looked at
	left     atomic.Int64
	target   int64         // bytes that make a batch
	endgame  time.Duration // Once: since when only files that are still written are left

	saved   map[string]int64 // how far files that grew are stored as settled; guarded by identities.mu
	unsaved map[string]int64 // where sealed files without name end whose last bytes are not saved; guarded by identities.mu
	told    []string         // partitions that are stored as finished; guarded by identities.mu
	fresh   bool             // progress was stored since the last look; guarded by identities.mu
	busy    time.Duration    // since when each listing has found something to be read, 0: the last one has not
}

func newReader(c *Catalogue, o stream.OpenOptions) *Reader {
	return &Reader{
		c: c, o: o, wake: make(chan struct{}, 1), listed: make(chan struct{}, 1), saved: make(map[string]int64),
		notes: notes{byID: make(map[string]*note)}, forgets: forgets{stored: make(map[string]bool)},
		filler: filler{Filler: lines.Filler{Rules: c.o.Rules}}, unsaved: make(map[string]int64),
	}
}

func (r *Reader) resume(id string) (stream.Mark, bool) {
	if r.o.Resume == nil || r.attendance == absent || r.attendance == gone {
		return stream.Mark{}, false
	}
	return r.o.Resume(id)
}

// count adds to one of the counted.
func (r *Reader) count(name string, n int64) {
	if r.o.Count != nil {
		r.o.Count(name, n)
		return
	}
	r.c.h.Count(name, n)
}

// Left implements stream.Estimator: what the last listing has seen of the files and was not read.
func (r *Reader) Left() int64 { return max(0, r.left.Load()) }

// Read implements stream.Reader.
func (r *Reader) Read(ctx context.Context, b *stream.Batch) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.attendance = reading
	err := r.read(ctx, b)
	if r.attendance = stalled; err == io.EOF {
		r.attendance = done
	}
	return err
}

// read is Read with the lock held.
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
			if left <= 0 || r.o.Once { // what is there now was listed: waiting would bring nothing
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
		if len(r.queue) == 0 && len(b.Spans) == 0 && (r.o.Once || c.over != nil) {
			if end, err := r.ended(); end {
				r.forgets.publish() // a first listing that is the last one, too, may have found some
				return err
			}
		}
	}
}

// cutShort ends a Read whose ctx has ended: what was taken is handed out, because the next Read goes on behind it.
func (r *Reader) cutShort(b *stream.Batch, cause error) error {
	if len(b.Spans) > 0 {
		r.filler.Complete(b)
		return nil
	}
	r.filler.Discard()
	return cause
}

// fill takes from the queue until the batch is complete (true) or nothing is left to do.
func (r *Reader) fill(ctx context.Context, b *stream.Batch) (bool, error) {
	r.c.resting.retire()
	if r.c.table.scans > 0 && r.queuedAt != r.c.table.scans {
		r.enqueue(r.c.now())
	}
	for len(r.ghosts) > 0 {
		if !r.sealLost(b, r.ghosts[0]) {
			return true, nil
		}
		r.ghosts = r.ghosts[1:]
	}
	for len(r.queue) > 0 {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if stay := r.take(b, r.queue[0]); stay {
			return true, nil
		}
		r.queue[0].queues--
		r.queue[0] = nil
		r.queue = r.queue[1:]
		for len(r.ghosts) > 0 {
			if !r.sealLost(b, r.ghosts[0]) {
				return true, nil
			}
			r.ghosts = r.ghosts[1:]
		}
	}
	return b.Full(), nil
}

// enqueue queues all files in which the route has something to do, in order.
func (r *Reader) enqueue(now time.Duration) {
	for _, f := range r.queue {
		f.queues--
	}
	r.ghosts = append(r.ghosts, r.waits...)
	r.waits = nil
	r.queuedAt = r.c.table.scans
	r.queue = r.c.lister.todo(r, now)
	left := int64(0)
	for _, f := range r.queue {
		f.queues++
	}
	for _, f := range r.c.table.byLabel {
		left += r.leftOf(f)
	}
	r.left.Store(left)
}

// leftOf returns how much of a file the route has not read.
func (r *Reader) leftOf(f *file) int64 {
	if f.entry == nil {
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

// hasReadAll reports whether every file that is known has been read to its end.
func (r *Reader) hasReadAll() bool {
	for _, f := range r.c.table.byKey {
		if !r.isAtEnd(f) {
			return false
		}
	}
	return true
}

// isAtEnd reports whether nothing more is to be read of a file as it was seen last.
func (r *Reader) isAtEnd(f *file) bool {
	cur := f.by(r)
	if cur != nil && cur.sealed {
		return true
	}
	if f.entry != nil && cur == nil {
		return true
	}
	return r.c.strategy.isAtEnd(f, cur)
}

// sleep returns after d, or when the files are to be listed or were listed. The lock is free meanwhile.
func (r *Reader) sleep(ctx context.Context, d time.Duration) error {
	r.attendance = waiting
	soonest := r.c.pace.listed + r.c.pace.spacing()
	r.c.mu.Unlock()
	defer func() {
		r.c.mu.Lock()
		r.attendance = reading
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	case <-r.listed:
		return nil
	case <-r.wake:
	}
	if d = min(d, soonest-r.c.now()); d <= 0 {
		return nil
	}
	t.Reset(d)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Commit implements stream.Reader: it keeps how far files that grew after their seal are settled, because only then may
// they be finished.
func (r *Reader) Commit(ctx context.Context, marks []stream.Mark) error {
	r.c.ids.mu.Lock()
	defer r.c.ids.mu.Unlock()
	r.fresh = true
	for _, m := range marks {
		if m.Finished && r.c.o.Keep {
			r.told = append(r.told, m.Part.ID)
		}
		if _, ok := r.saved[m.Part.ID]; ok && len(m.Above) == 0 {
			r.saved[m.Part.ID] = m.Watermark.Num
		}
		if end, ok := r.unsaved[m.Part.ID]; ok && isSaved(m, end) {
			delete(r.unsaved, m.Part.ID)
		}
	}
	return nil
}

// Close implements stream.Reader. While [Catalogue.Run] runs, the files stay open for the next reader of the route.
func (r *Reader) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.attendance == done {
		r.c.finishedRoutes = append(r.c.finishedRoutes, r.o.Route)
	}
	if r.c.running && r.attendance != gone && r.attendance != done {
		r.attendance = absent
		return nil
	}
	return r.c.leave(r)
}

// ended reports whether a reader with Once has come to its end, and how: io.EOF, or what was left.
func (r *Reader) ended() (bool, error) {
	c := r.c
	if c.over != nil {
		return true, c.over
	}
	var failed []*file
	young := 0
	for _, f := range c.table.byKey {
		switch {
		case r.isAtEnd(f):
		case f.trouble == nil:
			young++
		case f.trouble.failures.N < onceTries:
			return false, nil
		default:
			failed = append(failed, f)
		}
	}
	young += c.rotation.waited()
	now := c.now()
	if young == 0 {
		r.endgame = 0
	} else if r.endgame == 0 {
		r.endgame = now
	}
	if young > 0 && now-r.endgame < max(endgameMin, endgameSettle*c.o.Settle) {
		return false, nil
	}
	if young > 0 {
		c.log.Warn("files are still being written; what was there of them is read, the rest is left to the next run", "files", young)
	}
	if len(failed) == 0 {
		return true, io.EOF
	}
	slices.SortFunc(failed, func(a, b *file) int { return cmp.Compare(a.label, b.label) })
	return true, fmt.Errorf("%d files could not be read, the first is %q: %w; mend that and run again",
		len(failed), failed[0].label, failed[0].failed())
}

// begin gives r a cursor in f, of which the identity is known, where its progress says, or at the beginning.
func (r *Reader) begin(f *file, e *Entry) *cursor {
	m, stored := r.resume(e.text)
	cur := &cursor{r: r, f: f, entry: e, pos: lines.Resume(m), unread: f.unread}
	cur.part = &stream.Partition{ID: e.text, Name: f.partName()}
	cur.note = r.notes.begin(e.text, proofOf(m))
	delete(r.forgets.stored, e.text)
	r.c.ids.ref(e)
	f.cursors = append(f.cursors, cur)
	if id, err := fileid.Parse(e.text); f.state != awaiting && err == nil && !isOf(id, f.info) && cur.note.proof.Moved != keyOf(f.info) {
		r.notes.move(cur.note, f.seen(nil, false), true)
		cur.touch = stored
	}
	if cur.stamp(); f.state == awaiting {
		cur.stands = version{}
	}
	r.c.strategy.resumed(cur, m)
	return cur
}

// proofOf returns the proof in a stored note; one that cannot be read was logged when the marks were read.
func proofOf(m stream.Mark) fileid.Proof {
	proof, _ := fileid.ParseProof(m.Note)
	return proof
}

// highest returns how far anything of a file was settled.
func highest(m stream.Mark) int64 {
	high := m.Watermark.Num
	if n := len(m.Above); n > 0 {
		high = max(high, m.Above[n-1].To.Num)
	}
	return high
}

// isSaved reports whether m says that everything before end was delivered.
func isSaved(m stream.Mark, end int64) bool { return m.Watermark.Num >= end && len(m.Above) == 0 }

// unreadNow deals with an error of reading: a file that has just become shorter is looked at again soon.
func (h *handles) unreadNow(f *file, err error) {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		h.c.pace.soon()
		return
	}
	h.fail(f, err)
}
