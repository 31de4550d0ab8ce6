package sqlspan

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// Server creates connections of type C. Its methods may be called concurrently, but only by one
// goroutine at a time for the same connection.
type Server[C any] interface {
	// Connect creates a connection for a lane. It is called if the lane has no connection yet, or
	// if its last connection was closed.
	Connect(ctx context.Context) (C, error)
	// Alive reports whether the connection is still open. It is called before each use of the
	// connection except the first one, and must be fast. It may miss a broken connection.
	Alive(ctx context.Context, c C) bool
	// Restore is called after each use of a connection. err is the error of that use. Restore rolls
	// back an open transaction. If the state of the connection is unknown, it closes the connection
	// and returns false. It must work even if ctx has ended, and must limit its own time.
	Restore(ctx context.Context, c C, err error) bool
	// Close closes a connection that is in a known state.
	Close(c C)
}

// Lane holds one connection of a sink. The connection is created at its first use. It is replaced
// after each failure that leaves its state unknown, and when the server has closed it. A Lane is
// safe for concurrent use: callers wait until the connection is free.
type Lane[C any] struct {
	server Server[C]
	token  chan held[C] // buffer of 1; its holder may use the connection
}

type held[C any] struct {
	c    C
	made bool
}

// NewLane returns a lane that is not connected yet.
func NewLane[C any](s Server[C]) *Lane[C] {
	l := &Lane[C]{server: s, token: make(chan held[C], 1)}
	l.token <- held[C]{}
	return l
}

// ErrStopped is the error of a closed lane.
var ErrStopped = errors.New("the sink was stopped")

// Do calls f with the connection. bound limits the time of connecting and of f; 0 means no limit.
// Do returns the error of connecting or of f. If the lane is closed, it returns ErrStopped. If ctx
// ends while Do waits for the connection, Do returns the cause of ctx. It does so, too, if f
// returns [context.Canceled] because ctx has ended.
func (l *Lane[C]) Do(ctx context.Context, bound time.Duration,
	f func(ctx context.Context, c C) error) (err error) {
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
	if own.made && !l.server.Alive(ctx, own.c) {
		l.server.Close(own.c)
		own = held[C]{}
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
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

// Close waits until the connection is free, and closes it. It may be called more than once.
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

// Writer has the steps of [Deliver] that depend on the database. The caller has the connection for
// itself. If a method fails, [Server.Restore] rolls back the changes.
type Writer[C Session] interface {
	// Encode encodes the rows of a batch that has not been encoded yet, and so has no payload. It
	// appends them to dst and returns the records that cannot be encoded.
	Encode(dst []byte, b *stream.Batch) ([]byte, []sqltable.Refusal)
	// Prepare creates missing tables for a batch with data.
	Prepare(ctx context.Context, c C, b *stream.Batch) error
	// Enter begins the transaction of a batch, as [Ledger.Enter] does. data reports whether the
	// caller will write rows in this transaction.
	Enter(ctx context.Context, c C, b *stream.Batch, data bool) (Presence, error)
	// Write writes the rows to the table, in the transaction of Enter.
	Write(ctx context.Context, c C, b *stream.Batch, data []byte) error
}

// Deliver writes a batch to the database exactly once, together with the batch's spans in the
// ledger. If the ledger already contains the spans, Deliver writes nothing. It returns errors of
// the database, errors that end the route ([Ends]), and outcomes of package flow for refused
// records. scratch is a reusable buffer, in which Deliver encodes a batch without a payload.
func Deliver[C Session](ctx context.Context, c C, w Writer[C], shape *sqltable.Shape,
	b *stream.Batch, scratch *[]byte) error {
	data := b.Payload
	if len(data) == 0 && b.Kept() > 0 {
		if len(b.Records) == 0 {
			return errors.New("BUG: a batch was delivered without being split")
		}
		var refusals []sqltable.Refusal
		if *scratch, refusals = w.Encode((*scratch)[:0], b); len(refusals) > 0 {
			if err := shape.Unfit(refusals...); err != nil {
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
	if len(data) == 0 && len(Covering(nil, b.Spans)) == 0 {
		return nil
	}
	presence, err := w.Enter(ctx, c, b, len(data) > 0)
	if err != nil || presence == All {
		return err
	}
	if len(data) > 0 && presence == None {
		if err := w.Write(ctx, c, b, data); err != nil {
			return err
		}
	}
	return c.Commit(ctx)
}
