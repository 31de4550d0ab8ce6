package follow

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Reader hands out the files of a place to one route. It implements stream.Reader, Estimator, Noter
// and Forgetter.
type Reader struct {
	s        *Set
	o        stream.OpenOptions
	grow     *Growing                 // nil: files are sealed when they are quiet
	known    map[fileid.Key][]knownID // what the route has stored; guarded by s.mu
	dead     map[fileid.Key][]knownID // what is gone, and what the reader has done with for good; guarded by s.mu
	marked   bool                     // the route has stored anything
	news     []finishedFile           // from Tell; guarded by s.mu
	held     int                      // deleted files that are held open; guarded by s.mu
	told     []string                 // partitions whose marks say that they are finished; guarded by s.mu
	saved    map[string]int64         // what Commit said of files that grew; guarded by s.mu
	fresh    bool                     // marks were saved since the last look at shut; guarded by s.mu
	busy     time.Duration            // since when each listing has found something to be read, 0: the last one has not; guarded by s.mu
	wake     chan struct{}            // a notification came
	attended attendance               // while the route does not read
	notes    notes
	gone     gone

	past    map[string]bool // the ids of what it has done with for good, wherever another route has followed it since
	filler  filler
	unpacks unpack.Decoders
	files   map[string]*file     // by label, those that the place lists
	byKey   map[fileid.Key]*file // the same, and orphans
	resting rests                // files that stay and were delivered; changed with s.mu held
	woken   []fileid.Key         // of those, what was changed since the last listing
	shut    []*file              // growing: closed to make room for others
	holding time.Duration        // growing: until when a file is held back that may be a copy
	stirred time.Duration        // the last listing in which a file was met, renamed, deleted or emptied
	after   []*file              // finished ones that are looked at again, oldest first
	queue   []*file              // what there is to do, in order
	open    []*file              // with handles, the least recently used first
	refused map[string]string    // labels that are not read, and why
	rotated rotated
	folders folders       // in which files are missing
	uses    uint64        // of handles
	scans   uint32        // listings, those that failed too
	first   uint32        // the first one that did not fail; until then the one under way
	begun   bool          // there was one
	listed  time.Duration // when the last one that did not fail began
	target  int64         // bytes that make a batch
	left    int64         // bytes of the listed files that were not read
	pace    pace
	ghosts  int           // files that have vanished and still have to be sealed
	seals   []*file       // those of them that wait until their copies could be looked at
	endgame time.Duration // Once: since when only files that are still written are left
	head    [fileid.MaxHead + fileid.MaxBefore]byte
	over    error // why the route has to stop
	closed  bool
}

func newReader(s *Set, o stream.OpenOptions) *Reader {
	r := &Reader{
		s: s, o: o, grow: s.o.Growing, wake: make(chan struct{}, 1),
		known: make(map[fileid.Key][]knownID), dead: make(map[fileid.Key][]knownID), saved: make(map[string]int64),
		notes:  notes{byID: make(map[string]*note)},
		past:   make(map[string]bool),
		filler: filler{Filler: lines.Filler{Rules: s.o.Rules}},
		files:  make(map[string]*file), byKey: make(map[fileid.Key]*file), resting: newRests(s.o.Growing != nil),
		refused: make(map[string]string),
	}
	r.rotated.begin()
	if o.Known != nil {
		for m := range o.Known {
			r.marked = true
			r.knownOf(m)
		}
	}
	for _, ids := range r.known {
		slices.SortFunc(ids, byGen)
	}
	return r
}

// Left implements stream.Estimator: what the last listing has seen of the files and was not read.
func (r *Reader) Left() (bytes int64) {
	r.attended.lock()
	defer r.attended.unlock()
	return max(0, r.left)
}

// countLeft is what Left begins with after a listing; take makes it less.
func (r *Reader) countLeft() {
	r.left = 0
	for _, f := range r.files {
		if !f.finished {
			r.left += f.left()
		}
	}
}

// Read implements stream.Reader.
func (r *Reader) Read(ctx context.Context, b *stream.Batch) error {
	r.attended.lock()
	defer r.attended.unlock()
	err := r.read(ctx, b)
	r.attended.ended = err == io.EOF
	return err
}

// read is Read with the lock held.
func (r *Reader) read(ctx context.Context, b *stream.Batch) error {
	begun := r.s.now()
	r.target = int64(b.Limits().Bytes)
	r.gone.publish()
	for {
		if ctx.Err() != nil {
			return r.cutShort(b, context.Cause(ctx))
		}
		full, err := r.fill(ctx, b)
		if err != nil {
			return r.cutShort(b, err)
		}
		if full {
			r.filler.Complete(b)
			return nil
		}
		now := r.s.now()
		if len(b.Spans) == 0 {
			begun = now
			r.gone.publish()
		}
		wait := r.untilScan(now)
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
			if r.s.now() < r.pace.listed+r.pace.spacing() {
				continue
			}
		}
		r.list()
		if len(r.queue) == 0 && len(b.Spans) == 0 && (r.o.Once || r.over != nil) {
			if end, err := r.ended(); end {
				r.gone.publish() // a first listing that is the last one, too, may have found some
				return err
			}
		}
	}
}

// cutShort ends a Read whose ctx has ended: what was taken is handed out, because the next Read
// would go on behind it.
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
	r.retire()
	for len(r.queue) > 0 {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if stay := r.take(b, r.queue[0]); stay {
			return true, nil
		}
		r.queue[0].queued = false
		r.queue[0] = nil
		r.queue = r.queue[1:]
	}
	return b.Full(), nil
}

// untilScan returns how long the next listing can wait.
func (r *Reader) untilScan(now time.Duration) time.Duration {
	if r.scans == 0 {
		return 0
	}
	return r.pace.next(r.o.Once && r.allRead()) - now
}

// allRead says whether every file that is known has been read to its end.
func (r *Reader) allRead() bool {
	for _, f := range r.byKey {
		if !r.atEnd(f) {
			return false
		}
	}
	return true
}

// atEnd says whether nothing more is to be read of a file as it was seen last.
func (r *Reader) atEnd(f *file) bool {
	if r.grow == nil || f.orphan {
		return f.sealed
	}
	if f.trouble != nil && f.trouble.broken {
		return false
	}
	if (r.grow.PartialWait > 0 || f.view != nil) && f.partial() {
		return f.info.Size == 0 // the last record has no end yet, and will be handed out without one
	}
	return f.sealed || f.info.Size == 0 || f.empty() || f.entry != nil && f.info.Size == f.drained && !f.changed()
}

// sleep returns after d, or when a notification asks for a listing. The lock is free meanwhile.
func (r *Reader) sleep(ctx context.Context, d time.Duration) error {
	r.attended.wait()
	defer r.attended.lock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	case <-r.wake:
	}
	if d = min(d, r.pace.listed+r.pace.spacing()-r.s.now()); d <= 0 {
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

// list lists the files; an idle reader ever more rarely.
func (r *Reader) list() {
	begun := r.s.now()
	r.scan()
	found := len(r.queue)
	r.pace.record(begun, r.s.now(), found, r.s.o.PollMin, r.s.o.PollMax)
	r.s.listed(r, found > 0)
}

// Commit implements stream.Reader: it keeps how far files that grew after their seal are settled,
// because only then may they be finished.
func (r *Reader) Commit(ctx context.Context, marks []stream.Mark) error {
	r.s.catalogue.release(r, marks)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.fresh = true
	for _, m := range marks {
		if m.Finished && r.s.o.Keep {
			r.told = append(r.told, m.Part.ID)
		}
		if _, ok := r.saved[m.Part.ID]; ok && len(m.Above) == 0 {
			r.saved[m.Part.ID] = m.Watermark.Num
		}
	}
	return nil
}

// Close implements stream.Reader. While [Set.Run] runs, the reader's files stay open for the next
// reader of the route.
func (r *Reader) Close() error {
	if r.s.catalogue.keep(r) {
		return nil
	}
	return r.shutDown()
}

// shutDown gives back everything.
func (r *Reader) shutDown() error {
	r.attended.lock()
	defer r.attended.unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.s.catalogue.drop(r)
	var errs []error
	for _, f := range append(r.attended.carried, r.s.catalogue.unsaved(r)...) {
		errs = append(errs, f.close())
	}
	for _, f := range r.open {
		errs = append(errs, f.close())
	}
	r.unpacks.Close()
	errs = append(errs, r.closeNews())
	for _, f := range r.byKey {
		if !f.sealed { // one that is sealed may still be finished
			r.release(f)
		}
	}
	for _, f := range r.after {
		errs = append(errs, f.close())
		r.release(f)
	}
	return errors.Join(errs...)
}

// release gives back the id of a file that is not followed any more.
func (r *Reader) release(f *file) {
	if f.entry != nil {
		r.rotated.drop(f)
		r.s.forget(r, f.entry)
		f.entry = nil
	}
}

var _ io.Closer = (*Reader)(nil)
