package sqlspan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Server makes connections of the type C. It is called by many goroutines, for a connection by one
// at a time.
type Server[C any] interface {
	// Connect makes a connection for a lane that has none, or whose last one was given up.
	Connect(ctx context.Context) (C, error)
	// Restore is called after each use of a connection, with its error: it undoes the transaction that
	// may be open. false: that failed, or the connection is in doubt, and it was closed. It has to
	// work also when ctx is over, and bounds itself.
	Restore(ctx context.Context, c C, err error) bool
	// Close frees a connection that is in order.
	Close(c C)
}

// Lane is one connection, made when it is needed and anew after each failure that leaves it in
// doubt. It is safe for concurrent use: who comes waits for who has the connection.
type Lane[C any] struct {
	server Server[C]
	token  chan held[C] // takes one; who has it may use the connection
}

type held[C any] struct {
	c    C
	made bool
}

// NewLane returns a lane that has not connected yet.
func NewLane[C any](s Server[C]) *Lane[C] {
	l := &Lane[C]{server: s, token: make(chan held[C], 1)}
	l.token <- held[C]{}
	return l
}

// ErrStopped is what a lane answers that was closed.
var ErrStopped = errors.New("the sink was stopped")

// Do calls f with the connection, within a bound; 0: without one. It returns f's error, that of
// connecting, ErrStopped, or the cause of a ctx that has ended before the connection was free.
func (l *Lane[C]) Do(ctx context.Context, bound time.Duration, f func(ctx context.Context, c C) error) (err error) {
	var own held[C]
	select {
	case got, open := <-l.token:
		if !open {
			return ErrStopped
		}
		own = got
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.token <- own }()
	if bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	if !own.made {
		if own.c, err = l.server.Connect(ctx); err != nil {
			own = held[C]{}
			return err
		}
		own.made = true
	}
	err = f(ctx, own.c)
	if !l.server.Restore(ctx, own.c, err) {
		own = held[C]{}
	}
	return err
}

// Close waits until the connection is free, and frees it. It may be called again.
func (l *Lane[C]) Close() {
	own, open := <-l.token
	if !open {
		return
	}
	close(l.token)
	if own.made {
		l.server.Close(own.c)
	}
}

// Lanes gives workers that take one batch at a time, a connection each, names after where they lead
// to. A single one is in the order of places, and so keeps the order of a partition.
func Lanes[W stream.Worker](to string, workers []W) []stream.Lane {
	lanes := make([]stream.Lane, len(workers))
	for i, w := range workers {
		lanes[i] = stream.Lane{
			Name: fmt.Sprintf("%s #%d", to, i+1), Worker: w, Limits: stream.Limits{InFlight: 1, Ordered: len(workers) == 1},
		}
	}
	return lanes
}

// Writer is what one database does for a batch, over a connection that the caller has. What its
// methods have begun, Restore undoes.
type Writer[C Session] interface {
	// Encode appends the rows of a batch without a payload, and returns the records that no row can be
	// made of.
	Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal)
	// Prepare makes what a batch with data needs and the connection or the database lacks: the table.
	Prepare(ctx context.Context, c C, b *stream.Batch) error
	// Enter is [Ledger.Enter]; data means that rows will follow.
	Enter(ctx context.Context, c C, spans []stream.Span, data bool) (Presence, error)
	// Write puts the rows into the table, in that transaction.
	Write(ctx context.Context, c C, b *stream.Batch, data []byte) error
}

// Deliver writes a batch with its spans, once: where the ledger has it, nothing is written. Its
// errors are the database's, those that Ends knows, and outcomes of flow for records that are
// refused. scratch is memory that the lane keeps.
func Deliver[C Session](ctx context.Context, c C, w Writer[C], shape *sqltable.Shape, b *stream.Batch, scratch *[]byte) error {
	data := b.Payload
	if len(data) == 0 && b.Kept() > 0 {
		if len(b.Records) == 0 {
			return errors.New("BUG: a batch was delivered that nobody has split")
		}
		var refusals []sqltable.Refusal
		if *scratch, refusals = w.Encode((*scratch)[:0], b); len(refusals) > 0 {
			if err := shape.Unfit(refusals[0].Reason); err != nil {
				return &stream.Misconfigured{Err: err}
			}
			return sqltable.Answer(b, refusals)
		}
		data = *scratch
	}
	if len(data) > 0 {
		if err := w.Prepare(ctx, c, b); err != nil {
			return err
		}
	}
	spans := Covering(nil, b.Spans)
	if len(spans) == 0 && len(data) == 0 {
		return nil
	}
	presence, err := w.Enter(ctx, c, spans, len(data) > 0)
	if err != nil || presence == All {
		return err
	}
	if len(data) > 0 {
		if err := w.Write(ctx, c, b, data); err != nil {
			return err
		}
	}
	return c.Commit(ctx)
}
