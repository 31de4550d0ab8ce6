package table

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// fetcher is one connection to the database, with what was read over it last. While it is at work,
// it and its partition belong to the goroutine that has taken it; else to the one that calls Read.
type fetcher struct {
	db      database
	batch   *stream.Batch // lends its memory only; Read exchanges it for that of the route's batch
	filling filling

	part  *partition // that it reads; nil: it is free
	ready bool       // what came of it waits to be handed out
	err   error      // why it ended early; what is in the batch was read before
	lost  error      // what is in the batch could not be remembered, and may not be handed out
}

// crew are the goroutines of a reader, one for each fetcher that was ever at work.
type crew struct {
	work    chan *fetcher // has room for all
	results chan *fetcher // has room for all
	gone    chan struct{} // closed when one was told to stop
	alive   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	stops  []context.CancelCauseFunc
	closed bool
	cause  error // why gone is closed
}

func newCrew(most int) *crew {
	return &crew{work: make(chan *fetcher, most), results: make(chan *fetcher, most), gone: make(chan struct{})}
}

// hire starts one more.
func (c *crew) hire(r *reader) {
	c.alive.Add(1)
	r.s.h.Go("table/read", func(ctx context.Context) error {
		defer c.alive.Done()
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		if !c.enlist(stop) {
			return nil
		}
		for {
			select {
			case f := <-c.work:
				f.step(ctx, r)
				c.results <- f
			case <-ctx.Done():
				c.leave(context.Cause(ctx))
				return nil
			}
		}
	})
}

func (c *crew) enlist(stop context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops = append(c.stops, stop)
	return !c.closed
}

// leave tells the reader that nobody may take its work any more.
func (c *crew) leave(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.gone)
	}
}

func (c *crew) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// dismiss ends what is at work and waits for it.
func (c *crew) dismiss() {
	c.mu.Lock()
	c.closed = true
	for _, stop := range c.stops {
		stop(errClosed)
	}
	c.mu.Unlock()
	c.alive.Wait()
}

var errClosed = fmt.Errorf("the reader was closed: %w", context.Canceled)

// step looks behind the end of the partition, where it was read to it, and reads what is there.
// What has to be known of it after a crash is durable when it returns.
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
	b.Spans, b.Records, b.Fields, b.Data, b.Origins = b.Spans[:0], b.Records[:0], b.Fields[:0], b.Data[:0], 0
	if !p.ready() {
		if err := r.look(ctx, f.db, p); err != nil || !p.ready() {
			return err
		}
	}
	l := b.Limits()
	f.filling = filling{maker: &p.maker, room: l.Records, bytes: l.Bytes, keys: f.filling.keys, ends: f.filling.ends}
	f.filling.maker.begin(b)
	err := p.fill(ctx, f.db, b, &f.filling)
	f.filling.maker.finish()
	return err
}

// handOver gives b what was read. The memory that b had is used for what is read next.
func (f *fetcher) handOver(b *stream.Batch) {
	own := f.batch
	b.Data, own.Data = own.Data, b.Data
	b.Spans, own.Spans = own.Spans, b.Spans
	b.Records, own.Records = own.Records, b.Records
	b.Fields, own.Fields = own.Fields, b.Fields
	b.Names, own.Names = own.Names, b.Names
	b.Types, own.Types = own.Types, b.Types
	b.Origins = own.Origins
}
