package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/inorder"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

// delivery is one Deliver call in progress.
type delivery struct {
	batch *stream.Batch
	done  chan error // buffer of 1
}

// lane is the only worker of the sink.
type lane struct {
	sink   *Sink
	wake   chan struct{}
	insert inserting // owned by the writer
	exists bool      // the table exists; owned by the writer once it runs

	mu    sync.Mutex // guards the fields below; never held during I/O
	order inorder.Order[*delivery]
	ready []*delivery // in order, to write
	over  error       // why Deliver calls are refused
}

func newLane(s *Sink) *lane { return &lane{sink: s, wake: make(chan struct{}, 1)} }

// Deliver implements stream.Worker. It passes the batch to the writer, and waits until the batch is
// durable or has failed.
func (l *lane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	// Split does nothing if Encode has already split the batch. No other goroutine uses the batch,
	// because an ordered lane runs no other attempt of it at the same time.
	a.Value.Split()
	d := &delivery{batch: a.Value, done: make(chan error, 1)}
	if err := l.arrive(a, d); err != nil {
		return stream.Report{}, err
	}
	select {
	case err := <-d.done:
		return stream.Report{}, err
	case <-ctx.Done():
		l.failCanceled(a, context.Cause(ctx))
		// If the writer already uses the batch, wait until its transaction has ended: the
		// caller may change the batch after Deliver has returned.
		return stream.Report{}, <-d.done
	}
}

func (l *lane) arrive(a stream.Attempt, d *delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return l.over
	}
	before := len(l.ready)
	err := l.order.Arrive(a.Run, a.Index, d, func(d *delivery) { l.ready = append(l.ready, d) })
	if len(l.ready) > before {
		select {
		case l.wake <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
	return err
}

// failCanceled is called when the context of a Deliver call ends, with the attempt of that call. If
// the canceled batch still waits for earlier batches, failCanceled fails all deliveries that the
// writer has not begun. They are delivered again. Batches after the canceled one cannot be written
// before it. Batches before it fail too, because one failure ends the whole run (see
// [stream.Attempt]).
//
// If the batch does not wait, failCanceled does nothing: the writer reports the result.
func (l *lane) failCanceled(a stream.Attempt, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.order.Waits(a.Run, a.Index) {
		l.failLocked(fmt.Errorf("a batch of the same run was canceled: %v", cause))
	}
}

// failLocked makes Deliver return err for each batch that the writer has not begun. err must not
// have an outcome type such as [stream.Rejected], because the batches themselves are not at fault.
// The caller holds mu.
func (l *lane) failLocked(err error) {
	l.order.Fail(err, func(d *delivery) { d.done <- err })
	for _, d := range l.ready {
		d.done <- err
	}
	l.ready = nil
}

// end makes waiting and later Deliver calls fail. The reason is the err of the first call of end.
func (l *lane) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.over = err
	}
	l.failLocked(fmt.Errorf("the batch was not written: %v", l.over))
}

// run is the writer: it writes ready batches until ctx ends or an error ends the route.
func (l *lane) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			l.end(context.Cause(ctx))
			return nil
		case <-l.wake:
		}
		l.mu.Lock()
		group := l.ready
		l.ready = nil
		l.mu.Unlock()
		if len(group) == 0 {
			continue
		}
		written, err := l.write(ctx, group)
		for _, d := range group[:written] {
			d.done <- nil
		}
		if err == nil {
			continue
		}
		later := fmt.Errorf("an earlier batch was not written: %v", err)
		l.mu.Lock()
		l.failLocked(later)
		l.mu.Unlock()
		group[written].done <- err
		for _, d := range group[written+1:] {
			d.done <- later
		}
		if last := sqlspan.Ends(err); last != nil {
			l.end(last)
			return last
		}
	}
}

// write writes a group of batches in one transaction and returns the number of durable batches. If
// a batch fails, write commits the batches before it, and err is the error of that batch. If the
// transaction itself fails, written is 0.
//
// A refused row may make SQLite roll back the transaction, including the batches before it. In this
// case write writes those batches again, in another transaction.
func (l *lane) write(ctx context.Context, group []*delivery) (written int, err error) {
	var failed error // error of a batch; the batches before it are committed
	made := false
	err = l.sink.use(ctx, func(c *connection) error {
		if err := l.sink.Ledger.Begin(forever(), c); err != nil {
			return err
		}
		for failed == nil && written < len(group) {
			b := group[written].batch
			if !l.exists && !made && b.Kept() > 0 {
				if err := l.sink.makeTable(c, b); err != nil {
					return err
				}
				made = true
			}
			if failed, err = l.one(c, b); err != nil {
				return err
			}
			if failed == nil {
				written++
			}
		}
		if err := c.Commit(forever()); err != nil {
			return err
		}
		return l.sink.server.checkFile(c)
	})
	if e, ok := errors.AsType[*rolledBackError](err); ok {
		if written > 0 { // the batches before it were rolled back as well
			if written, err = l.write(ctx, group[:written]); err != nil {
				return written, err
			}
		}
		return written, &stream.Rejected{Err: e.reason}
	}
	if err != nil {
		return 0, outcome(err)
	}
	l.exists = l.exists || made
	return written, failed
}

// one writes the rows of a batch and its spans. If this fails, it writes neither, and returns one
// of two errors. An error in failed concerns only this batch: the transaction of the group can
// continue without it. An error in err means that the transaction itself has failed.
func (l *lane) one(c *connection, b *stream.Batch) (failed, err error) {
	if _, err := c.Exec(forever(), "SAVEPOINT batch"); err != nil {
		return nil, err
	}
	failed = l.rows(c, b)
	if failed == nil {
		_, err = c.Exec(forever(), "RELEASE batch")
		return nil, err
	}
	if _, ended := errors.AsType[*rolledBackError](failed); ended || broken(failed) {
		return nil, failed
	}
	if _, err := c.Exec(forever(), "ROLLBACK TO batch"); err != nil {
		// SQLite has rolled back the transaction itself, for example on a full disk
		return nil, failed
	}
	if _, err := c.Exec(forever(), "RELEASE batch"); err != nil {
		return nil, err
	}
	return outcome(failed), nil
}

func (l *lane) rows(c *connection, b *stream.Batch) error {
	presence, err := l.sink.Ledger.Add(forever(), c, b)
	if err != nil || presence != sqlspan.None || b.Kept() == 0 {
		return err
	}
	l.insert.s, l.insert.c = l.sink, c
	return l.insert.write(b)
}
