package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/supervise"
)

// job is one batch on its way from the reader through the processors to the sender. Its place in route.jobs
// is the read order, whatever the order in which the processors finish.
type job struct {
	batch *penstock.Batch
	keys  []string
	done  chan struct{} // closed when processed; nil: there is nothing to process
	err   error
	rest  *job // handed on together with it, in read order; nil: nothing

	trial                 // of the processors that died of it
	saved *penstock.Saved // what the batch was before the processor that has it now; nil: none has had it
}

// read fills batches until the data ends or the route drains, then closes the way to the sender. Its error
// reaches the sender behind the last batch, so that what was read before it is still delivered. ctx ends when
// the route drains, stop when it stops: then what was read stays with the garbage collector. A panic of the source is such
// an error: its reader is not asked again.
func (r *route) read(ctx, stop context.Context) {
	defer close(r.jobs)
	defer r.handOn(stop)
	if r.work != nil {
		defer close(r.work)
	}
	returned := false
	defer func() {
		if !returned {
			r.readErr = &supervise.PanicError{Name: "reader", Value: recover(), Stack: debug.Stack()}
		}
	}()
	r.readAll(ctx, stop)
	returned = true
}

func (r *route) readAll(ctx, stop context.Context) {
	w, patient := r.reader.(penstock.Waiter)
	if patient = patient && r.work == nil; patient { // else the processors take longer than a wake
		w.BeforeWait(func() { r.handOn(stop) })
	}
	for {
		if r.held.n > 0 && r.budget.exhausted() {
			r.handOn(stop)
		}
		j, err := r.readOne(ctx)
		if err != nil {
			r.readErr = err
			return
		}
		if r.work != nil {
			j.done = make(chan struct{})
			select {
			case r.work <- j:
			case <-stop.Done():
				r.readErr = context.Cause(stop)
				return
			}
		}
		if r.held.add(j); !patient || !r.held.more(r.readIn) {
			r.handOn(stop)
		}
		if stop.Err() != nil {
			r.readErr = context.Cause(stop)
			return
		}
	}
}

// readOne reads one batch and opens its spans. io.EOF: the data has ended, or the route accepts no more. A
// batch that was read and then not sent stays opened and unsettled: it will be read again.
func (r *route) readOne(ctx context.Context) (*job, error) {
	for r.ahead == nil {
		b := r.pool.Get(penstock.Limits{Bytes: int(r.cfg.Batch.Bytes), Records: r.cfg.Batch.Records})
		if err := r.budget.acquire(ctx, b); err != nil {
			b.Release()
			return nil, io.EOF
		}
		begun := time.Since(r.started)
		r.reading.Store(int64(max(1, begun)))
		err := r.reader.Read(ctx, b)
		r.reading.Store(0)
		b.Time = time.Now()
		r.readIn = b.Time.Sub(r.started) - begun
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
	e, ok := r.reader.(penstock.Estimator)
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
func (r *route) opened(ctx context.Context, b *penstock.Batch) (*job, error) {
	j, met, err := r.book(ctx, b)
	if len(met) > 0 && r.ledgered != nil && !r.memory.layered() {
		r.announce(met, b)
	}
	return j, err
}

// announce saves marks of partitions that nobody had one of, before the sink gets anything of them. A kill may come between the sink's
// commit and the first time that the checkpoint is saved: the sink then says how much of a file it has, and only the checkpoint
// which file that was. What cannot be saved now, the checkpoint's goroutine saves, or reports.
func (r *route) announce(met []penstock.Mark, b *penstock.Batch) {
	to := make(map[string]penstock.Position, len(met))
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

func (r *route) book(ctx context.Context, b *penstock.Batch) (j *job, met []penstock.Mark, err error) {
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
	if r.books.counts.readRecords == 0 && r.books.fresh(b) {
		r.guard.First(b.Origins)
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

// producer hands processed batches to the sender, in read order.
type producer struct{ r *route }

// Next implements flow.Producer.
func (p producer) Next(ctx context.Context) (flow.Item[*penstock.Batch], error) {
	for {
		j, err := p.job(ctx)
		switch {
		case err != nil:
			return flow.Item[*penstock.Batch]{}, err
		case j.err != nil:
			j.batch.Release()
			return flow.Item[*penstock.Batch]{}, j.err
		case !p.r.nothingToSend(j.batch):
			return p.r.item(j.batch, j.keys), nil
		}
		p.r.settleUnsent(j.batch)
	}
}

func (p producer) job(ctx context.Context) (*job, error) {
	j, err := p.next(ctx)
	if err != nil || j.done == nil {
		return j, err
	}
	select {
	case <-j.done:
		return j, nil
	case <-ctx.Done(): // it may be with a processor that waits for its restart
		return nil, context.Cause(ctx)
	}
}

// next is the next job in read order, processed or not.
func (p producer) next(ctx context.Context) (*job, error) {
	j := p.r.handed
	if j == nil {
		select {
		case first, ok := <-p.r.jobs:
			if !ok {
				return nil, p.r.readErr
			}
			j = first
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	p.r.handed, j.rest = j.rest, nil
	return j, nil
}

func (r *route) item(b *penstock.Batch, keys []string) flow.Item[*penstock.Batch] {
	return flow.Item[*penstock.Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes(), Keys: keys}
}

// nothingToSend says whether b needs no worker. A sink that keeps the spans itself gets empty batches too, to
// store them.
func (r *route) nothingToSend(b *penstock.Batch) bool { return r.ledgered == nil && b.Kept() == 0 }
