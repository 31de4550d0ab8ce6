package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// job is one batch on its way from the reader through the processors to the sender. Its place in route.jobs
// is the read order, whatever the order in which the processors finish.
type job struct {
	batch *stream.Batch
	keys  []string
	done  chan struct{} // closed when processed; nil: there is nothing to process
	err   error

	trial                   // of the processors that died of it
	saved *stream.Savepoint // what the batch was before the processor that has it now; nil: none has had it
}

// scope is the context in which a route reads: it ends with the one it was begun in, and before that when the route accepts nothing more.
// It is safe for concurrent use.
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

// read fills batches for the processors until the data ends or the route drains, then closes the way to the sender. Its error
// reaches the sender behind the last batch, so that what was read before it is still delivered. When ctx is done, what was read
// stays with the garbage collector.
func (r *route) read(ctx context.Context) {
	defer close(r.jobs)
	if r.memory.waits.store == nil { // else the processors end with the route: what waits may come to them
		defer close(r.work)
	}
	for {
		j, err := r.readSafely(r.reads.in(ctx))
		if err != nil {
			r.readErr = err
			return
		}
		j.done = make(chan struct{})
		for _, way := range []chan *job{r.work, r.jobs} {
			select {
			case way <- j:
			case <-ctx.Done():
				r.readErr = context.Cause(ctx)
				return
			}
		}
	}
}

// readSafely is readOne; a panic of the source is such an error: its reader is not asked again.
func (r *route) readSafely(ctx context.Context) (j *job, err error) {
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

// readOne reads one batch and opens its spans. io.EOF: the data has ended, or the route accepts no more. A
// batch that was read and then not sent stays opened and unsettled: it will be read again.
func (r *route) readOne(ctx context.Context) (*job, error) {
	for r.ahead == nil {
		b := r.pool.Get(stream.BatchLimits{Bytes: int(r.cfg.Batch.Bytes), Records: r.cfg.Batch.Records})
		if err := r.budget.acquire(ctx, b); err != nil {
			b.Release()
			return nil, io.EOF
		}
		r.reading.Store(int64(max(1, time.Since(r.started))))
		err := r.reader.Read(ctx, b)
		r.reading.Store(0)
		b.Time = time.Now()
		r.budget.took(b)
		switch {
		case ctx.Err() != nil:
			err = io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			err = fmt.Errorf("source %s: %w", r.pipe.cfg.Source.Component.Name, err)
		}
		r.ahead = err
		r.estimate()
		if ctx.Err() != nil || len(b.Spans) == 0 {
			b.Release()
			continue
		}
		return r.opened(ctx, b)
	}
	return nil, r.ahead
}

// estimateEvery is how often a reader is asked how much is left: it may have to look at every file.
const estimateEvery = 250 * time.Millisecond

func (r *route) estimate() {
	e, ok := r.reader.(stream.Estimator)
	now := time.Since(r.started)
	if !ok || r.ahead == nil && now-r.estimated < estimateEvery {
		return
	}
	r.estimated = now
	r.left.Store(e.Left())
}

// oneKey orders everything on a single ordered lane; a batch of a thousand small files need not name them all.
var oneKey = []string{"all"}

// opened takes what was read into the books.
func (r *route) opened(ctx context.Context, b *stream.Batch) (*job, error) {
	j, met, err := r.book(ctx, b)
	if len(met) > 0 && r.ledgered != nil && !r.memory.layered() {
		r.announce(met, b)
	}
	return j, err
}

// announce saves marks of partitions that nobody had one of, before the sink gets anything of them. A kill may come between the sink's
// commit and the first time that the checkpoint is saved: the sink then says how much of a file it has, and only the checkpoint
// which file that was. What cannot be saved now, the checkpoint's goroutine saves, or reports.
func (r *route) announce(met []stream.Mark, b *stream.Batch) {
	to := make(map[string]stream.Position, len(met))
	for i := range b.Spans {
		to[b.Spans[i].Part.ID] = b.Spans[i].To
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

func (r *route) book(ctx context.Context, b *stream.Batch) (j *job, met []stream.Mark, err error) {
	if r.work == nil { // else the processors' goroutines do it
		if err := r.buryDead(ctx, b); err != nil {
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
		r.progress.Store(int64(time.Since(r.started)))
	}
	r.books.now = time.Since(r.started)
	if err := r.books.open(b); err != nil {
		b.Release()
		return nil, nil, err
	}
	met = r.books.meet()
	j = &job{batch: b}
	if r.keyed && r.alone {
		j.keys = oneKey
	} else if r.keyed {
		j.keys = r.books.keysOf(b)
	}
	return j, met, nil
}

// producer hands batches to the sender, in read order. Where nothing processes them it reads them itself: so a batch goes
// from the source into a worker's hands, or to its end in a prompt one's, with nobody woken on its way.
type producer struct{ r *route }

// Next implements flow.Producer.
func (p producer) Next(ctx context.Context) (flow.Item[*stream.Batch], error) {
	for {
		j, err := p.job(ctx)
		switch {
		case err != nil:
			return flow.Item[*stream.Batch]{}, err
		case j.err != nil:
			j.batch.Release()
			return flow.Item[*stream.Batch]{}, j.err
		case !p.r.nothingToSend(j.batch):
			return p.r.item(j.batch, j.keys), nil
		}
		p.r.settleUnsent(j.batch)
	}
}

func (p producer) job(ctx context.Context) (*job, error) {
	if p.r.work == nil {
		return p.r.readSafely(p.r.reads.in(ctx))
	}
	var j *job
	select {
	case next, ok := <-p.r.jobs:
		if !ok {
			return nil, p.r.readErr
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

func (r *route) item(b *stream.Batch, keys []string) flow.Item[*stream.Batch] {
	return flow.Item[*stream.Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes(), Keys: keys}
}

// nothingToSend says whether b needs no worker. A sink that keeps the spans itself gets empty batches too, to
// store them.
func (r *route) nothingToSend(b *stream.Batch) bool { return r.ledgered == nil && b.Kept() == 0 }
