package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/backoff"
)

// reader hands out the rows of the tables to one route.
type reader struct {
	s       *source
	o       penstock.OpenOptions
	db      database
	started time.Time

	tables  map[string]*reading // by the subject's name
	parts   []*partition
	turn    int // which partition is asked first
	filling filling

	pace     backoff.Adaptive
	interval time.Duration
	failed   backoff.State
	failing  time.Duration // since when the database has not answered

	mu      sync.Mutex                   // guards durable
	durable map[string]penstock.Position // up to where partitions are settled for good

	ended  bool // Once: everything that was there has been looked at
	closed bool
}

// The bounds of waiting for a database that does not answer.
const (
	onceWithout = time.Minute // a finite run gives up
	pollShare   = 100         // the shortest wait at the end is so small a part of `poll`,
	pollLeast   = 5 * time.Millisecond
	openWait    = 250 * time.Millisecond // while transactions are open that may write before the last row
)

var reconnect = backoff.Exponential(100*time.Millisecond, 2, 10*time.Second).Full()

func (r *reader) now() time.Duration { return time.Since(r.started) }

// Read implements penstock.Reader.
func (r *reader) Read(ctx context.Context, b *penstock.Batch) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := r.readOnce(ctx, b)
		switch {
		case ctx.Err() != nil:
			r.takeBack(b)
			return context.Cause(ctx)
		case err == nil && len(b.Spans) == 0 && r.ended:
			return io.EOF
		case err == nil:
			r.failed, r.failing = backoff.State{}, 0
		case !r.db.transient(err):
			err = fmt.Errorf("%s: %w", r.s.where, err)
		default:
			if err = r.pause(ctx, err); err == nil && len(b.Spans) == 0 {
				continue
			}
		}
		if saved := r.save(); saved != nil {
			r.takeBack(b)
			return saved
		}
		if err != nil || len(b.Spans) > 0 {
			return err
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// readOnce looks at the end of each partition that was read to it, and fills b from the next one that has something.
func (r *reader) readOnce(ctx context.Context, b *penstock.Batch) error {
	if len(r.parts) == 0 || r.at() < 0 {
		if err := r.look(ctx); err != nil {
			return err
		}
	}
	i := r.at()
	if i < 0 {
		return nil
	}
	p := r.parts[i]
	r.turn = i + 1
	f := &r.filling
	*f = filling{maker: p.maker, room: b.Limits().Records, bytes: b.Limits().Bytes, keys: f.keys, ends: f.ends}
	f.maker.begin(b)
	err := p.fill(ctx, r.db, b, f)
	f.maker.finish()
	return err
}

// at is the next partition in turn that has something to hand out; -1: none has.
func (r *reader) at() int {
	for k := range r.parts {
		if i := (r.turn + k) % len(r.parts); r.parts[i].ready() {
			return i
		}
	}
	return -1
}

// look finds out what is new behind the end of every partition, and what came late before it.
func (r *reader) look(ctx context.Context) error {
	if r.ended {
		return nil
	}
	if !r.o.Once { // else those are read that were there when it was opened
		if err := r.list(ctx); err != nil {
			return err
		}
	}
	for _, p := range r.parts {
		if err := r.lookAt(ctx, p); err != nil {
			return err
		}
	}
	if r.o.Once && r.at() < 0 {
		r.ended = true
	}
	return nil
}

func (r *reader) lookAt(ctx context.Context, p *partition) error {
	if err := r.advance(ctx, p); err != nil {
		return err
	}
	if l := p.late; l != nil && p.pos >= p.limit && r.now() >= l.next {
		began := r.now()
		found, err := l.look(ctx, r.db, p)
		if err != nil {
			return err
		}
		took := r.now() - began
		l.next = r.now() + max(rescanLeast, rescanShare*took)
		if r.o.Once {
			l.next = 1 << 62
		}
		r.s.h.Count("rows_found_late", int64(found))
	}
	return nil
}

// advance moves the limit of a partition to what may be read now.
func (r *reader) advance(ctx context.Context, p *partition) error {
	if p.fixed {
		return nil
	}
	last, err := r.db.observe(ctx, p.relation, rowQuery{after: p.pos, stripe: p.stripe})
	if err != nil {
		return err
	}
	if !p.relation.table && (last.last != "" || p.pos == "") { // a table's columns are NOT NULL
		found, err := r.db.unplaced(ctx, p.relation)
		if err != nil {
			return err
		}
		if found {
			return nullKey(p.relation)
		}
	}
	if r.o.Once { // what is there now: rows that come before it later are found late, by the next run
		p.limit, p.fixed = max(p.limit, last.last), true
		return nil
	}
	last.at = r.now()
	p.horizon.see(last)
	n := len(p.horizon.waiting)
	if n > 0 {
		if n, err = r.db.passed(ctx, p.relation, p.horizon.waiting); err != nil {
			return err
		}
	}
	p.limit = max(p.limit, p.horizon.pass(n, r.now(), r.s.o.Lag))
	return nil
}

// save makes durable what has to be known of b before it is handed out.
func (r *reader) save() error {
	for _, p := range r.parts {
		if p.late != nil {
			if err := p.late.save(r.durableOf(p.late.part.ID).Num, r.durableOf(p.part.ID).Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeBack makes what is in b be read again.
func (r *reader) takeBack(b *penstock.Batch) {
	for _, s := range slices.Backward(b.Spans) {
		for _, p := range r.parts {
			switch s.Part {
			case &p.part:
				p.pos = s.From.Key
			case p.latePart():
				p.late.handed = s.From.Num
			}
		}
	}
	b.Spans, b.Records, b.Data, b.Origins = b.Spans[:0], b.Records[:0], b.Data[:0], 0
}

func (p *partition) latePart() *penstock.Partition {
	if p.late == nil {
		return nil
	}
	return &p.late.part
}

// pause waits after a failure that may pass. A finite run gives up in the end.
func (r *reader) pause(ctx context.Context, cause error) error {
	now := r.now()
	if r.failing == 0 {
		r.failing = now
	}
	if r.o.Once && now-r.failing > onceWithout {
		return fmt.Errorf("%s: the database has not answered for %v: %w", r.s.where, onceWithout, cause)
	}
	wait, next, _ := reconnect.Next(r.failed, nil)
	r.failed = next
	r.s.h.Log().Warn("the database did not answer; it is asked again", "again_in", wait, "error", cause)
	return sleep(ctx, wait)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait waits at the end of all partitions for something new: ever longer while nothing comes.
func (r *reader) wait(ctx context.Context) error {
	if r.ended {
		return nil
	}
	r.interval = r.pace.Next(r.interval, false)
	d := r.interval
	for _, p := range r.parts {
		if left, ok := p.horizon.due(r.now(), r.s.o.Lag); ok {
			d = min(d, max(left, pollLeast), openWait+left)
		}
	}
	woken, err := r.db.wait(ctx, d)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		if !r.db.transient(err) {
			return fmt.Errorf("%s: %w", r.s.where, err)
		}
		return r.pause(ctx, err)
	}
	if woken {
		r.interval = 0
	}
	return nil
}

// Commit implements penstock.Reader. It runs on another goroutine than Read.
func (r *reader) Commit(_ context.Context, marks []penstock.Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range marks {
		r.durable[m.Part.ID] = m.Watermark
	}
	return nil
}

func (r *reader) durableOf(id string) penstock.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.durable[id]
}

// Close implements penstock.Reader.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	for _, p := range r.parts {
		if p.late != nil {
			errs = append(errs, p.late.journal.close())
		}
	}
	return errors.Join(append(errs, r.db.close())...)
}
