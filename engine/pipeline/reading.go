package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/flow"
)

// job is one batch on its way from the reader through the processors to the sender. Its place in route.jobs
// is the read order, whatever the order in which the processors finish.
type job struct {
	batch *penstock.Batch
	keys  []string
	done  chan struct{} // closed when processed; nil: there is nothing to process
	err   error
}

// read fills batches until the data ends or the route drains, then closes the way to the sender. Its error
// reaches the sender behind the last batch, so that what was read before it is still delivered. ctx ends when
// the route drains, stop when it stops: then what was read stays with the garbage collector.
func (r *route) read(ctx, stop context.Context) {
	defer close(r.jobs)
	if r.work != nil {
		defer close(r.work)
	}
	for {
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
		select {
		case r.jobs <- j:
		case <-stop.Done():
			r.readErr = context.Cause(stop)
			return
		}
	}
}

// readOne reads one batch and opens its spans. io.EOF: the data has ended, or the route accepts no more. A
// batch that was read and then not sent stays opened and unsettled: it will be read again.
func (r *route) readOne(ctx context.Context) (*job, error) {
	for r.ahead == nil {
		if err := r.budget.acquire(ctx); err != nil {
			return nil, io.EOF
		}
		b := r.pool.Get(penstock.Limits{Bytes: int(r.cfg.Batch.Bytes), Records: r.cfg.Batch.Records})
		err := r.reader.Read(ctx, b)
		b.Time = time.Now()
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
	if r.work == nil { // else the processors' goroutines do it
		if err := r.buryDead(ctx, b); err != nil {
			b.Release()
			return nil, err
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
		return nil, err
	}
	j := &job{batch: b}
	if r.keyed && r.alone {
		j.keys = oneKey
	} else if r.keyed {
		j.keys = r.books.keysOf(b)
	}
	return j, nil
}

// workers is how many goroutines process: as many as run at once.
func (r *route) workers() int { return min(runtime.GOMAXPROCS(0), maxProcessors) }

// maxProcessors bounds the goroutines and processor instances of one route.
const maxProcessors = 64

// process is one goroutine of the processor pool, with processor instances of its own.
func (r *route) process(ctx context.Context) error {
	chain := make([]penstock.Processor, len(r.processors))
	for i, make := range r.processors {
		p, err := make()
		if err != nil {
			return err
		}
		chain[i] = p
	}
	for j := range r.work {
		j.err = r.processOne(ctx, chain, j.batch)
		close(j.done)
	}
	return nil
}

func (r *route) processOne(ctx context.Context, chain []penstock.Processor, b *penstock.Batch) error {
	for i, p := range chain {
		if err := p.Process(ctx, b); err != nil {
			return fmt.Errorf("processor %d, %s: %w", i+1, r.cfg.Processors[i].Component.Name, err)
		}
	}
	if err := r.buryDead(ctx, b); err != nil {
		return err
	}
	if r.encoder == nil || b.Kept() == 0 {
		return nil
	}
	if err := b.Encode(r.encoder); err != nil {
		return fmt.Errorf("encoding for sink %s: %w", r.cfg.Sink.Component.Name, err)
	}
	return nil
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
	select {
	case j, ok := <-p.r.jobs:
		if !ok {
			return nil, p.r.readErr
		}
		if j.done != nil {
			<-j.done // the processor's goroutine always ends it
		}
		return j, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *route) item(b *penstock.Batch, keys []string) flow.Item[*penstock.Batch] {
	return flow.Item[*penstock.Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes(), Keys: keys}
}

// nothingToSend says whether b needs no worker. A sink that keeps the spans itself gets empty batches too, to
// store them.
func (r *route) nothingToSend(b *penstock.Batch) bool { return r.ledgered == nil && b.Kept() == 0 }
