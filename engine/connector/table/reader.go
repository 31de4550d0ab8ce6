package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// reader reads the rows of the tables for one route. The goroutine that calls Read gives partitions
// to free fetchers, and returns the rows that the fetchers have read. It takes the partitions in
// turn, and skips those that neither have rows to read nor are due for a check for new rows.
type reader struct {
	s       *source
	o       stream.OpenOptions
	started time.Time
	pace    backoff.Adaptive
	count   func(name string, n int64) // counts events of the route

	tables   map[string]*reading // by the subject's name
	parts    []*partition
	nextPart int           // index of the next partition to consider
	listing  checkSchedule // when the next search for new partitions is due
	listed   time.Duration // time of the last search

	// the connection on which the reader waits for new rows while no fetcher works; it is separate,
	// because receiving notifications needs a connection of its own
	waits database
	free  []*fetcher
	// fetchers that work or have rows to hand out, in the order of their start
	busy []*fetcher
	pool *workerPool

	failed      backoff.State
	failing     time.Duration // when the database stopped responding; 0 if it responds
	pausedUntil time.Duration // no work is started before this time

	mu      sync.Mutex                 // guards durable
	durable map[string]stream.Position // position up to which each partition is durably settled
}

// onceWithout is the time without a response of the database after which a finite run (--once)
// fails.
const onceWithout = time.Minute

// slowStep is the time after which a step of a fetcher is logged.
const slowStep = time.Minute

var reconnect = backoff.Exponential(100*time.Millisecond, 2, 10*time.Second).Full()

func (r *reader) now() time.Duration { return time.Since(r.started) }

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.begin(ctx, b.Limits()); err != nil {
			return err
		}
		f, err := r.await(ctx)
		if err != nil {
			return err
		}
		if f == nil {
			if r.ended() {
				return io.EOF
			}
			continue
		}
		err = r.finished(f)
		if f.lost != nil {
			return f.lost
		}
		if len(f.batch.Spans) > 0 {
			f.moveInto(b)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// begin searches for new partitions if a search is due. Then it starts the free fetchers on
// partitions that are ready or due for a check for new rows.
func (r *reader) begin(ctx context.Context, l stream.BatchLimits) error {
	now := r.now()
	if now < r.pausedUntil {
		return nil
	}
	if err := r.discover(ctx, now); err != nil || r.pausedUntil > now {
		return err
	}
	for len(r.free) > 0 {
		p := r.next(now)
		if p == nil {
			return nil
		}
		last := len(r.free) - 1
		f := r.free[last]
		if f.batch == nil {
			r.pool.start(r)
		}
		if f.batch == nil || f.batch.Limits() != l {
			f.batch = stream.NewBatch(l)
		}
		r.free, r.busy = r.free[:last], append(r.busy, f)
		f.part, p.busy = p, true
		f.began, f.logged = r.now(), false
		r.pool.work <- f // buffered for all fetchers
	}
	return nil
}

// next returns the next partition in turn that is ready or due for a check for new rows. It returns
// nil if there is none.
func (r *reader) next(now time.Duration) *partition {
	for k := range r.parts {
		i := (r.nextPart + k) % len(r.parts)
		if p := r.parts[i]; !p.busy && !p.done && (p.ready() || now >= p.endCheck.due) {
			r.nextPart = i + 1
			return p
		}
	}
	return nil
}

// listAt returns the time of the next search for new partitions. While any partition is ready or
// being read, the searches are at least the time `poll` apart. listAt returns false if there are no
// more searches, because the run is finite or the options allow no new partitions.
func (r *reader) listAt() (time.Duration, bool) {
	at := r.listing.due
	// partitions being read must not be accessed
	if len(r.busy) > 0 || slices.ContainsFunc(r.parts, (*partition).ready) {
		at = max(at, r.listed+r.s.o.Poll)
	}
	return at, !r.o.Once && r.s.o.grows()
}

// discover searches for new partitions and opens them, if a search is due.
func (r *reader) discover(ctx context.Context, now time.Duration) error {
	if at, ok := r.listAt(); !ok || now < at || len(r.free) == 0 {
		return nil
	}
	r.listed = now
	before := len(r.parts)
	err := r.list(ctx, r.free[len(r.free)-1].db)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(r.parts) > before {
		r.listing.found()
	} else {
		r.listing.notFound(r.now(), r.pace, false, 0)
	}
	return r.reconnectAfter(r.free[len(r.free)-1].db, err)
}

// await returns the next fetcher with a result. It returns nil if a check or a search is due first,
// or if there is nothing to wait for. In a finite run it returns the fetchers in the order of their
// start, so that the order of rows does not depend on the speed of the fetchers.
func (r *reader) await(ctx context.Context) (*fetcher, error) {
	for {
		for i, f := range r.busy {
			if f.ready {
				r.busy = slices.Delete(r.busy, i, i+1)
				return f, nil
			}
			if r.o.Once {
				break
			}
		}
		if len(r.busy) == 0 {
			return nil, r.waitForRows(ctx)
		}
		if early, err := r.watch(ctx); err != nil || early {
			return nil, err
		}
	}
}

// watch waits until a fetcher has a result. early reports that a free fetcher has work to do before
// that.
func (r *reader) watch(ctx context.Context) (early bool, err error) {
	var due <-chan time.Time
	if len(r.free) > 0 {
		if d, ok := r.until(); ok {
			timer := time.NewTimer(d)
			defer timer.Stop()
			due = timer.C
		}
	}
	var slow <-chan time.Time
	oldest := slices.IndexFunc(r.busy, func(f *fetcher) bool { return !f.ready && !f.logged })
	if oldest >= 0 {
		timer := time.NewTimer(r.busy[oldest].began + slowStep - r.now())
		defer timer.Stop()
		slow = timer.C
	}
	select {
	case f := <-r.pool.results:
		f.ready = true
	case <-slow:
		if len(r.pool.results) > 0 {
			break // perhaps that of the oldest step: Read was not called for a long time
		}
		f := r.busy[oldest]
		f.logged = true
		r.s.h.Log().Warn("a query has not ended yet; waiting for the database",
			"table", f.part.part.Name, "waited", slowStep,
			"remedy", "check the server and the connection, and the index on `order_by`")
	case <-due:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-r.pool.ctx.Done():
		return false, context.Cause(r.pool.ctx)
	}
	return false, nil
}

// finished makes a fetcher free for other partitions before its result is handed out. It returns
// the fetcher's error if the error must end the reader.
func (r *reader) finished(f *fetcher) error {
	p := f.part
	f.ready, f.part, p.busy = false, nil, false
	r.free = append(r.free, f)
	switch {
	case len(f.batch.Spans) > 0:
		p.endCheck.found()
		if r.listing.interval > 0 {
			r.listing.interval, r.listing.due = 0, min(r.listing.due, r.now()+r.pace.Min)
		}
	case f.err == nil && r.o.Once:
		p.done = true
	case f.err == nil:
		left, waiting := p.horizon.due(r.now(), *r.s.o.Lag)
		p.endCheck.notFound(r.now(), r.pace, waiting, left)
	}
	return r.reconnectAfter(f.db, f.err)
}

// ended reports whether a finite run has read everything.
func (r *reader) ended() bool {
	return r.o.Once && !slices.ContainsFunc(r.parts, func(p *partition) bool { return !p.done })
}

// reconnectAfter is called after each use of db, with the error of the use. It returns an error if
// the reader must end. After a temporary error, no work is started until r.pausedUntil, so that
// the database can recover. A finite run fails if the database has not responded for onceWithout.
func (r *reader) reconnectAfter(db database, err error) error {
	if err == nil {
		r.failed, r.failing = backoff.State{}, 0
		return nil
	}
	if !db.transient(err) {
		return fmt.Errorf("%s: %w", r.s.location, err)
	}
	now := r.now()
	if r.failing == 0 {
		r.failing = now
	}
	if r.o.Once && now-r.failing > onceWithout {
		return fmt.Errorf("%s: the database has not responded for %v: %w", r.s.location,
			onceWithout, err)
	}
	if now < r.pausedUntil { // other fetchers have met the same failure
		return nil
	}
	wait, next, _ := reconnect.Next(r.failed, nil)
	r.failed, r.pausedUntil = next, now+wait
	r.s.h.Log().Warn("the database did not respond; retrying", "again_in", wait,
		"error", err)
	return nil
}

// until returns the time until a check for new rows or a search for new partitions is due. ok is
// false if none will be due.
func (r *reader) until() (d time.Duration, ok bool) {
	now := r.now()
	at := time.Duration(1<<63 - 1)
	for _, p := range r.parts {
		if !p.busy && !p.done {
			at = min(at, p.endCheck.due)
		}
	}
	if list, ok := r.listAt(); ok {
		at = min(at, list)
	}
	if at == 1<<63-1 {
		return 0, false
	}
	return max(0, at-now, r.pausedUntil-now), true
}

// waitForRows is called if no fetcher works. It waits until a check for new rows or a search for
// new partitions is due, or the database notifies of new rows. If none will be due, it returns at
// once.
func (r *reader) waitForRows(ctx context.Context) error {
	d, ok := r.until()
	if !ok {
		return nil
	}
	if r.pausedUntil > r.now() {
		return retry.Sleep(ctx, d)
	}
	woken, err := r.waits.wait(ctx, d)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if woken {
		r.listing.found()
		for _, p := range r.parts {
			p.endCheck.found()
		}
	}
	if err != nil {
		return r.reconnectAfter(r.waits, err)
	}
	return nil
}

// search searches a partition for late rows before its position, and then for new rows after it.
func (r *reader) search(ctx context.Context, db database, p *partition) error {
	if l := p.late; l != nil && r.now() >= l.next && !(r.o.Once && l.last) {
		began := r.now()
		found, err := l.search(ctx, db, p, r.s.o.ReusedKeys)
		if err != nil {
			return err
		}
		r.count("rows_found_late", int64(found))
		if l.incomplete {
			// Hand out the late rows first: new rows would displace remembered rows that this
			// search has not checked yet.
			return nil
		}
		// a finite run searches for late rows before reading and once more at its end
		if l.last = p.fixed; !r.o.Once {
			l.next = r.now() + max(rescanLeast, rescanShare*(r.now()-began))
		}
	}
	return r.advance(ctx, db, p)
}

// advance moves the limit of a partition to the last row that may be read now.
func (r *reader) advance(ctx context.Context, db database, p *partition) error {
	if p.fixed {
		return nil
	}
	last, err := db.observe(ctx, p.relation, rowQuery{after: p.pos, stripe: p.stripe})
	if err != nil {
		return err
	}
	switch {
	case last.last != "" && last.last <= p.pos:
		return orderError(p.relation, last.last)
	case last.last != "":
		p.ended = false
	}
	if last.last == "" {
		if err := p.watchEnd(ctx, db, r); err != nil {
			return err
		}
	}
	if !p.relation.table && (last.last != "" || p.pos == "") { // a table's key columns are NOT NULL
		found, err := db.hasNullKey(ctx, p.relation)
		if err != nil {
			return err
		}
		if found {
			return nullKey(p.relation)
		}
	}
	// rows that appear before this row later are late rows for the next run
	if r.o.Once {
		p.limit, p.fixed = max(p.limit, last.last), true
		return nil
	}
	last.at = r.now()
	p.horizon.add(last)
	n := len(p.horizon.waiting)
	if n > 0 {
		if n, err = db.passed(ctx, p.relation, p.horizon.waiting); err != nil {
			return err
		}
	}
	p.limit = max(p.limit, p.horizon.pass(n, r.now(), *r.s.o.Lag))
	return nil
}

// Commit implements stream.Reader. It runs concurrently with Read.
func (r *reader) Commit(_ context.Context, marks []stream.Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range marks {
		r.durable[m.Part.ID] = m.Watermark
	}
	return nil
}

func (r *reader) durableOf(id string) stream.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.durable[id]
}

// Close implements stream.Reader. Rows that were read but not handed out will be read again. It may
// be called more than once.
func (r *reader) Close() error {
	r.pool.stop()
	var errs []error
	for _, p := range r.parts {
		if p.late != nil {
			errs = append(errs, p.late.journal.close())
		}
	}
	for _, f := range slices.Concat(r.free, r.busy) {
		errs = append(errs, f.db.close())
	}
	return errors.Join(errs...)
}
