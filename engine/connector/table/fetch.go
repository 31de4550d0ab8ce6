package table

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// fetcher reads rows over one connection to the database, and holds the rows that it has read last.
// While a goroutine of the workerPool runs the fetcher, only this goroutine may use the fetcher and
// its partition. At all other times, only the goroutine that calls Read may use them.
type fetcher struct {
	db      database
	batch   *stream.Batch // the rows; moveInto exchanges its memory with that of the route's batch
	filling filling

	part  *partition // the partition being read; nil if the fetcher is free
	ready bool       // a result is ready for Read

	began  time.Duration // when the current step began, on the reader's clock
	logged bool          // the current step was logged, because it takes long

	err  error // why reading ended early; the batch has the rows read before
	lost error // why the journal was not written: the rows must not be handed out
}

// workerPool has the goroutines that run a reader's fetchers. It starts another goroutine when more
// fetchers are in use than ever before.
type workerPool struct {
	work    chan *fetcher   // has room for all fetchers
	results chan *fetcher   // has room for all fetchers
	ctx     context.Context // ends, with the cause, when the goroutines accept no more work
	end     context.CancelCauseFunc
	alive   sync.WaitGroup

	mu      sync.Mutex // guards cancels
	cancels []context.CancelCauseFunc
}

func newWorkerPool(most int) *workerPool {
	c := &workerPool{work: make(chan *fetcher, most), results: make(chan *fetcher, most)}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	return c
}

// start starts another goroutine, which runs fetchers until its context or that of the pool ends.
func (c *workerPool) start(r *reader) {
	c.alive.Add(1)
	r.s.h.Go("table/read", func(ctx context.Context) error {
		defer c.alive.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		c.mu.Lock()
		c.cancels = append(c.cancels, cancel)
		c.mu.Unlock()
		for c.ctx.Err() == nil {
			select {
			case f := <-c.work:
				f.step(ctx, r)
				c.results <- f
			case <-ctx.Done():
				c.end(context.Cause(ctx))
			}
		}
		return nil
	})
}

// stop cancels the work in progress and waits until all goroutines have ended.
func (c *workerPool) stop() {
	c.end(errClosed)
	c.mu.Lock()
	for _, cancel := range c.cancels {
		cancel(errClosed)
	}
	c.mu.Unlock()
	c.alive.Wait()
}

var errClosed = fmt.Errorf("the reader was closed: %w", context.Canceled)

// step reads rows of the fetcher's partition. If the partition was read to its end, step first
// checks for new rows. step also writes the journal entries that a restart needs for these rows. If
// it fails to make them durable, it stores the error in f.lost.
func (f *fetcher) step(ctx context.Context, r *reader) {
	p := f.part
	f.err = f.read(ctx, r, p)
	if p.late == nil {
		return
	}
	f.lost = p.late.save(r.durableOf(p.late.part.ID).Num, r.durableOf(p.part.ID).Key)
}

func (f *fetcher) read(ctx context.Context, r *reader, p *partition) error {
	b := f.batch
	b.Spans, b.Records, b.Fields, b.Data, b.Origins = b.Spans[:0], b.Records[:0], b.Fields[:0],
		b.Data[:0], 0
	if !p.ready() {
		if err := r.search(ctx, f.db, p); err != nil || !p.ready() {
			return err
		}
	}
	l := b.Limits()
	f.filling = filling{maker: &p.maker, records: l.Records, bytes: l.Bytes,
		keys: f.filling.keys, ends: f.filling.ends}
	f.filling.maker.begin(b)
	err := p.fill(ctx, f.db, b, &f.filling)
	f.filling.maker.finish()
	return err
}

// moveInto moves the rows into b. f gets the memory of b for its next rows.
func (f *fetcher) moveInto(b *stream.Batch) {
	own := f.batch
	b.Data, own.Data = own.Data, b.Data
	b.Spans, own.Spans = own.Spans, b.Spans
	b.Records, own.Records = own.Records, b.Records
	b.Fields, own.Fields = own.Fields, b.Fields
	b.Names, own.Names = own.Names, b.Names
	b.Types, own.Types = own.Types, b.Types
	b.Origins = own.Origins
}
