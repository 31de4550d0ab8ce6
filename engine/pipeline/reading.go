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

// job is one batch on its way from the reader to the sender. Its place in route.jobs is the read order,
// whatever the order in which the processors finish.
type job struct {
	batch *penstock.Batch
	keys  []string
	done  chan struct{} // closed when processed; nil: nothing to process
	err   error
}

// read fills batches until the data ends or the route drains, then closes the way to the sender. Its error
// reaches the sender behind the last batch, so that what was read before it is still delivered.
func (r *route) read(ctx context.Context) {
	r.readErr = r.readAll(ctx)
	close(r.jobs)
	if r.work != nil {
		close(r.work)
	}
}

func (r *route) readAll(ctx context.Context) error {
	for {
		if err := r.budget.acquire(ctx); err != nil {
			return quiet(ctx, err)
		}
		b := r.pool.Get(penstock.Limits{Bytes: int(r.cfg.Batch.Bytes), Records: r.cfg.Batch.Records})
		err := r.reader.Read(ctx, b)
		b.Time = time.Now()
		if ctx.Err() != nil || err != nil && !errors.Is(err, io.EOF) && len(b.Spans) == 0 || len(b.Spans) == 0 {
			b.Release()
		} else if passed := r.pass(ctx, b); passed != nil {
			return quiet(ctx, passed)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return quiet(ctx, context.Cause(ctx))
		case err != nil:
			return fmt.Errorf("source %s: %w", r.pipe.cfg.Source.Component.Name, err)
		}
	}
}

// quiet turns the end of a drained or stopped reader into none.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// oneKey orders everything on a single ordered lane; a batch of a thousand small files need not name them all.
var oneKey = []string{"all"}

// pass opens the batch's spans and hands it on. A batch that cannot be handed on because the route stops
// stays opened and unsettled: it will be read again.
func (r *route) pass(ctx context.Context, b *penstock.Batch) error {
	if r.work == nil { // else the processors' goroutines do it
		if err := r.buryDead(ctx, b); err != nil {
			b.Release()
			return err
		}
	}
	r.mu.Lock()
	if r.books.counts.readRecords == 0 {
		r.guard.First(b.Origins)
	}
	err := r.books.open(b)
	var keys []string
	if err == nil && r.keyed {
		keys = oneKey
		if !r.alone {
			keys = r.books.keysOf(b)
		}
	}
	r.mu.Unlock()
	if err != nil {
		b.Release()
		return err
	}
	j := &job{batch: b, keys: keys}
	if r.work != nil {
		j.done = make(chan struct{})
		select {
		case r.work <- j:
		case <-ctx.Done():
			b.Release()
			return context.Cause(ctx)
		}
	}
	select {
	case r.jobs <- j:
		return nil
	case <-ctx.Done():
		if j.done == nil {
			b.Release()
		}
		return context.Cause(ctx)
	}
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
		select {
		case j, ok := <-p.r.jobs:
			if !ok && p.r.readErr != nil {
				return flow.Item[*penstock.Batch]{}, p.r.readErr
			}
			if !ok {
				return flow.Item[*penstock.Batch]{}, io.EOF
			}
			if j.done != nil {
				<-j.done // the processor's goroutine always ends it
			}
			if j.err != nil {
				j.batch.Release()
				return flow.Item[*penstock.Batch]{}, j.err
			}
			if p.r.nothingToSend(j.batch) {
				p.r.settleUnsent(j.batch)
				continue
			}
			return p.r.item(j.batch, j.keys), nil
		case <-ctx.Done():
			return flow.Item[*penstock.Batch]{}, context.Cause(ctx)
		}
	}
}

func (r *route) item(b *penstock.Batch, keys []string) flow.Item[*penstock.Batch] {
	return flow.Item[*penstock.Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes(), Keys: keys}
}

// nothingToSend says whether b needs no worker. A sink that keeps the spans itself gets empty batches too, to
// store them.
func (r *route) nothingToSend(b *penstock.Batch) bool { return r.ledgered == nil && b.Kept() == 0 }
