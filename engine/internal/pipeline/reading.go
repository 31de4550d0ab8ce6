package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// reader reads batches from the source. It counts them in the books (the counts and the progress of
// the route).
type reader struct {
	*core
	line    *line
	letters *letterWriter
	// announce gets the progress of new partitions before the sink gets their data
	announce func(met []stream.Mark, b *stream.Batch)
	waits    *waits
	pool     *stream.Pool
	budget   *budget
	reads    scope
	left     atomic.Int64 // unread bytes when the reader was closed; -1 if unknown
	reading  atomic.Int64 // start of the running call of Read, in ns since started; 0 if none

	reader      stream.Reader // set before Run
	withdrawals *withdrawals
	// estimator is the reader while it is open, or nil if the reader cannot estimate.
	estimator atomic.Pointer[stream.Estimator]
	nextErr   error // error that came with the last batch; the next call returns it

	drained  <-chan struct{} // closed when the route drains
	complete atomic.Bool     // the source's data has ended before the route drained
}

// open keeps the reader that the source has opened.
func (r *reader) open(source stream.Reader) {
	r.reader = source
	if e, ok := source.(stream.Estimator); ok {
		r.estimator.Store(&e)
	}
}

// end keeps the reader's last estimate of unread bytes. It is called before the reader is closed.
func (r *reader) end() {
	r.left.Store(r.leftBytes())
	r.estimator.Store(nil)
}

// leftBytes returns the number of bytes in the source that are not read yet, or -1 if unknown. If
// the reader can estimate them, the number also grows while the route does not read. leftBytes is
// safe for concurrent use.
func (r *reader) leftBytes() int64 {
	if e := r.estimator.Load(); e != nil {
		return (*e).Remaining()
	}
	return r.left.Load()
}

// line has the channels that carry batches from the reader through the processors to the sender.
type line struct {
	jobs       chan *job // to the sender, in read order
	work       chan *job // to the processors, in read order
	afterDeath chan *job // to the processors, after the death of one
	reread     chan *job // to the processors: batches that waited for a retry and were read again
	err        error     // why the reader ended, set before jobs is closed; io.EOF at the end of the data
}

// job is a batch on its way from the reader through the processors to the sender. The processors
// may finish jobs in any order, but the sender gets them in the order in which they were read: it
// receives jobs in this order from line.jobs, and waits until each is done.
type job struct {
	batch *stream.Batch
	keys  []string
	done  chan struct{} // closed when processed; nil if the route needs no processing
	err   error

	trial                   // counts processors that died of this batch
	saved *stream.Savepoint // copy of the batch before its current processing; nil before the first

	withdrawn bool // guarded by withdrawals.mu
}

// scope is the context for reading. It ends when its parent context ends, or earlier when the route
// stops reading. It is safe for concurrent use.
type scope struct {
	mu     sync.Mutex // guards the fields below
	ctx    context.Context
	cancel context.CancelCauseFunc // nil before in was called
	cause  error                   // cause given to end; nil if end was not called
}

// in creates the context as a child of ctx. Later calls return the same context.
func (s *scope) in(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel == nil {
		s.ctx, s.cancel = context.WithCancelCause(ctx)
		if s.cause != nil {
			s.cancel(s.cause)
		}
	}
	return s.ctx
}

// end ends the context with a cause. Only the first cause counts. If end is called before the first
// call of in, then in creates a context that has already ended.
func (s *scope) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
	}
	if s.cancel != nil {
		s.cancel(cause)
	}
}

// Run reads batches until the data ends or the route drains. It passes each batch to the processors
// and to the sender. At the end, it closes line.jobs. If the source returns an error, the sender
// gets it after the batches that were read before, so these are still delivered. If ctx ends, Run
// does not release the batches that it has read. The garbage collector frees them.
func (r *reader) Run(ctx context.Context) error {
	defer close(r.line.jobs)
	// Closing the channel line.work ends the processors. Without a store of waiting batches, they
	// are not needed after the last batch that was read. With a store, waiting batches may still be
	// read again and processed, so the processors end with the route.
	if r.waits.store == nil {
		defer close(r.line.work)
	}
	for {
		j, err := r.readSafely(r.reads.in(ctx))
		if err != nil {
			r.line.err = err
			return nil
		}
		j.done = make(chan struct{})
		r.withdrawals.add(j)
		for _, way := range []chan *job{r.line.work, r.line.jobs} {
			select {
			case way <- j:
			case <-ctx.Done():
				r.line.err = context.Cause(ctx)
				return nil
			}
		}
	}
}

// readSafely calls readOne and turns a panic of the source into an error. After a panic, the reader
// must not be used again.
func (r *reader) readSafely(ctx context.Context) (j *job, err error) {
	returned := false
	defer func() {
		if !returned {
			err = &supervise.PanicError{Name: "reader", Value: recover(), Stack: debug.Stack()}
		}
	}()
	j, err = r.readOne(ctx)
	returned = true
	return j, err
}

// readOne reads one batch and counts it in the books. It returns io.EOF if the data has ended or
// the route stops reading. If a batch was read but cannot be sent, it stays unsettled, and a
// later run reads it again.
func (r *reader) readOne(ctx context.Context) (*job, error) {
	for r.nextErr == nil {
		b := r.pool.Get(stream.BatchLimits{Bytes: int(r.cfg.Batch.Bytes), Records: r.cfg.Batch.Records})
		if err := r.budget.acquire(ctx, b); err != nil {
			b.Release()
			return nil, io.EOF
		}
		r.reading.Store(int64(max(1, r.now())))
		err := r.reader.Read(ctx, b)
		r.reading.Store(0)
		b.Time = time.Now()
		r.budget.correct(b)
		switch {
		case ctx.Err() != nil:
			err = io.EOF
		case errors.Is(err, io.EOF):
			r.complete.Store(!isClosed(r.drained))
		case err != nil:
			err = fmt.Errorf("source %s: %w", r.source, err)
		}
		r.nextErr = err
		if ctx.Err() != nil || len(b.Spans) == 0 {
			b.Release()
			continue
		}
		r.tapSource(b)
		j, err := r.newJob(ctx, b)
		if errors.Is(err, errNotAssigned) {
			continue
		}
		return j, err
	}
	return nil, r.nextErr
}

// isClosed reports whether c is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// oneKey is the order key of all batches if the sink has only one worker and this worker needs the
// batches in order. Usually the keys of a batch are the ids of its partitions. A batch of a
// thousand small files would need a thousand keys, and oneKey replaces them.
var oneKey = []string{"all"}

// newJob counts b, which was just read, in the books. If b has data of new partitions, newJob
// announces their progress (see saver.announce). It returns the batch's job.
func (r *reader) newJob(ctx context.Context, b *stream.Batch) (*job, error) {
	j, met, err := r.recordRead(ctx, b)
	if len(met) > 0 {
		r.announce(met, b)
	}
	return j, err
}

func (r *reader) recordRead(ctx context.Context, b *stream.Batch) (j *job, met []stream.Mark,
	err error) {
	if r.line == nil { // otherwise the processors write them
		if err := r.letters.writeMarkedDead(ctx, b); err != nil {
			b.Release()
			return nil, nil, err
		}
	}
	r.observed.read(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.books.counts.readRecords == 0 {
		if r.books.nothingSettled(b) {
			r.guard.Start(time.Now())
		}
		r.books.noteSettledAbove(b)
	}
	if r.books.counts.unsettled() == 0 { // the route was idle, not stalled
		r.progress.Store(int64(r.now()))
	}
	r.books.now = r.now()
	if err := r.books.open(b); err != nil {
		b.Release()
		return nil, nil, err
	}
	met = r.books.takeNew()
	j = &job{batch: b}
	switch r.order {
	case inOneLane:
		j.keys = oneKey
	case byPartition:
		j.keys = r.books.keysOf(b)
	}
	return j, met, nil
}

// idle returns how long the running call of Read has waited for data, or 0 if none is running.
func (r *reader) idle() time.Duration {
	if since := r.reading.Load(); since > 0 {
		return r.now() - time.Duration(since)
	}
	return 0
}

// next returns the next batch in read order.
func (r *reader) next(ctx context.Context) (*job, error) {
	if r.line == nil {
		return r.readSafely(r.reads.in(ctx))
	}
	return r.line.next(ctx)
}

func (l *line) next(ctx context.Context) (*job, error) {
	var j *job
	select {
	case next, ok := <-l.jobs:
		if !ok {
			return nil, l.err
		}
		j = next
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-j.done:
		return j, nil
	case <-ctx.Done(): // the processor may be waiting for a restart
		return nil, context.Cause(ctx)
	}
}
