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

// reader reads batches out of the source and opens their spans in the books.
type reader struct {
	*core
	line      *line
	letters   *letterWriter
	positions announcer
	waits     *waits
	pool      *stream.Pool
	budget    *budget
	reads     scope
	left      atomic.Int64 // bytes that the source has and nobody has read; -1: it does not tell
	reading   atomic.Int64 // when the call of Read that runs began, in nanoseconds since started; 0: none runs

	reader    stream.Reader // set before Run
	estimated time.Duration // when the reader was last asked how much is left
	ahead     error         // what the reader said with its last batch, of which the next call tells
}

// announcer saves progress of new partitions before the sink gets anything of them.
type announcer interface {
	announce(met []stream.Mark, b *stream.Batch)
}

// line is the way of batches from the reader through the processors to the sender.
type line struct {
	jobs  chan *job // to the sender, in read order
	work  chan *job // to the processors
	again chan *job // back to them, of which one has died
	late  chan *job // to them, of batches that waited and were read again
	err   error     // why the reader ended, set before jobs is closed; io.EOF: the data ended
}

// job is one batch on its way from the reader through the processors to the sender. Its place in
// line.jobs is the read order, whatever the order in which the processors finish.
type job struct {
	batch *stream.Batch
	keys  []string
	done  chan struct{} // closed when processed; nil: there is nothing to process
	err   error

	trial                   // of the processors that died of it
	saved *stream.Savepoint // what the batch was before the processor that has it now; nil: none has had it
}

// scope is the context in which a route reads: it ends with the one it was begun in, and before
// that when the route accepts nothing more. It is safe for concurrent use.
type scope struct {
	mu     sync.Mutex // guards what follows
	ctx    context.Context
	cancel context.CancelCauseFunc // nil: it was not begun
	cause  error                   // of its end; nil: it has not been ended
}

// in begins it in ctx. Once begun it is what it is.
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

// end ends it, also before it was begun. The first cause counts.
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

// Run fills batches for the processors until the data ends or the route drains, then closes the way
// to the sender. Its error reaches the sender behind the last batch, so that what was read before
// it is still delivered. When ctx is done, what was read stays with the garbage collector.
func (r *reader) Run(ctx context.Context) error {
	defer close(r.line.jobs)
	if r.waits.store == nil { // else the processors end with the route: what waits may come to them
		defer close(r.line.work)
	}
	for {
		j, err := r.readSafely(r.reads.in(ctx))
		if err != nil {
			r.line.err = err
			return nil
		}
		j.done = make(chan struct{})
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

// readSafely is readOne; a panic of the source is such an error: its reader is not asked again.
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

// readOne reads one batch and opens its spans. io.EOF: the data has ended, or the route accepts no
// more. A batch that was read and then not sent stays opened and unsettled: it will be read again.
func (r *reader) readOne(ctx context.Context) (*job, error) {
	for r.ahead == nil {
		b := r.pool.Get(stream.BatchLimits{Bytes: int(r.cfg.Batch.Bytes), Records: r.cfg.Batch.Records})
		if err := r.budget.acquire(ctx, b); err != nil {
			b.Release()
			return nil, io.EOF
		}
		r.reading.Store(int64(max(1, r.now())))
		err := r.reader.Read(ctx, b)
		r.reading.Store(0)
		b.Time = time.Now()
		r.budget.took(b)
		switch {
		case ctx.Err() != nil:
			err = io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			err = fmt.Errorf("source %s: %w", r.source, err)
		}
		r.ahead = err
		r.estimate()
		if ctx.Err() != nil || len(b.Spans) == 0 {
			b.Release()
			continue
		}
		j, err := r.opened(ctx, b)
		if errors.Is(err, errNotAssigned) {
			continue
		}
		return j, err
	}
	return nil, r.ahead
}

// estimateEvery is how often a reader is asked how much is left: it may have to look at every file.
const estimateEvery = 250 * time.Millisecond

func (r *reader) estimate() {
	e, ok := r.reader.(stream.Estimator)
	now := r.now()
	if !ok || r.ahead == nil && now-r.estimated < estimateEvery {
		return
	}
	r.estimated = now
	r.left.Store(e.Left())
}

// oneKey orders everything on a single ordered lane; a batch of a thousand small files need not
// name them all.
var oneKey = []string{"all"}

// opened takes what was read into the books.
func (r *reader) opened(ctx context.Context, b *stream.Batch) (*job, error) {
	j, met, err := r.book(ctx, b)
	if len(met) > 0 {
		r.positions.announce(met, b)
	}
	return j, err
}

func (r *reader) book(ctx context.Context, b *stream.Batch) (j *job, met []stream.Mark, err error) {
	if r.line == nil { // else the processors' goroutines do it
		if err := r.letters.buryDead(ctx, b); err != nil {
			b.Release()
			return nil, nil, err
		}
	}
	if r.manifest != nil {
		r.manifest.Read(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.books.counts.readRecords == 0 {
		if r.books.fresh(b) {
			r.guard.Start(time.Now())
		}
		r.books.resumesBelow(b)
	}
	if r.books.counts.unsettled() == 0 { // it was idle, not stalled
		r.progress.Store(int64(r.now()))
	}
	r.books.now = r.now()
	if err := r.books.open(b); err != nil {
		b.Release()
		return nil, nil, err
	}
	met = r.books.meet()
	j = &job{batch: b}
	switch r.order {
	case inOneLane:
		j.keys = oneKey
	case byPartition:
		j.keys = r.books.keysOf(b)
	}
	return j, met, nil
}

// idle returns for how long the reader has waited for data; 0 if it does not.
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
	case <-ctx.Done(): // it may be with a processor that waits for its restart
		return nil, context.Cause(ctx)
	}
}
