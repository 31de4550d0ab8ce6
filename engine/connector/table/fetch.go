package table

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// fetcher is one connection to the database with the rows it read last. While a goroutine runs the
// fetcher, the fetcher and its partition belong to that goroutine. Otherwise they belong to the
// goroutine that calls Read.
type fetcher struct {
	db      database
	batch   *stream.Batch // only its memory is used; Read swaps it with that of the route's batch
	filling filling

	part  *partition // the partition being read; nil if the fetcher is free
	ready bool       // a result waits to be handed out
	err   error      // why it ended early; the batch holds the rows read before
	lost  error      // the rows in the batch could not be recorded and must not be handed out
}

// workerPool runs the goroutines of a reader, one for each fetcher used so far.
type workerPool struct {
	work    chan *fetcher // buffer for all fetchers
	results chan *fetcher // buffer for all fetchers
	stopped chan struct{} // closed when a goroutine was told to stop
	alive   sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	stops  []context.CancelCauseFunc
	closed bool
	cause  error // why stopped is closed
}

func newWorkerPool(most int) *workerPool {
	return &workerPool{work: make(chan *fetcher, most), results: make(chan *fetcher, most),
		stopped: make(chan struct{})}
}

// start starts another goroutine.
func (c *workerPool) start(r *reader) {
	c.alive.Add(1)
	r.s.h.Go("table/read", func(ctx context.Context) error {
		defer c.alive.Done()
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		if !c.register(stop) {
			return nil
		}
		for {
			select {
			case f := <-c.work:
				f.step(ctx, r)
				c.results <- f
			case <-ctx.Done():
				c.recordStop(context.Cause(ctx))
				return nil
			}
		}
	})
}

func (c *workerPool) register(stop context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops = append(c.stops, stop)
	return !c.closed
}

// recordStop closes stopped, which shows the reader that no goroutine accepts work any more.
func (c *workerPool) recordStop(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.stopped)
	}
}

func (c *workerPool) stopCause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// stop cancels the work in progress and waits for its end.
func (c *workerPool) stop() {
	c.mu.Lock()
	c.closed = true
	for _, stop := range c.stops {
		stop(errClosed)
	}
	c.mu.Unlock()
	c.alive.Wait()
}

var errClosed = fmt.Errorf("the reader was closed: %w", context.Canceled)

// step checks for new rows if the partition was read to its end, and reads rows. The journal
// entries of these rows, which a restart needs, are durable when step returns.
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

// moveInto moves the rows read into b. The memory of b is used for the next rows.
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
