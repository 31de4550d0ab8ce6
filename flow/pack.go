package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// DefaultPackRows is the default of PackOptions.Rows.
const DefaultPackRows = 1000

// maxPackRows bounds a batch if nothing else does.
const maxPackRows = 1 << 24

// PackOptions bounds the batches of rows. With the zero value, a row has a cost of 1, and a batch
// waits until it has 1000 rows or the rows end.
type PackOptions[R any] struct {
	// Rows bounds the rows of a batch. Zero means 1000.
	Rows int
	// Cost bounds the cost of a batch, in the units of CostOf. Zero means no bound. A single row is
	// always allowed.
	Cost float64
	// Linger bounds the time for which an incomplete batch waits for more rows, from its first row.
	// Zero means no bound: a batch waits until it is full or the rows end.
	Linger time.Duration

	// CostOf returns the cost of a row, more than 0. Nil means 1 for each.
	CostOf func(R) float64
	// BytesOf returns the bytes of a row, 0 or more, for Options.MaxBytes. Nil means 0 for each.
	BytesOf func(R) int64
	// Cut reports whether a batch must end between two successive rows, such as where another
	// partition begins, or where rows between them were settled before a restart. Nil means never.
	Cut func(last, next R) bool
}

// packer is a Producer of batches of rows. Its calls come one at a time.
type packer[R any] struct {
	o       PackOptions[R]
	readRow func(context.Context) (R, error)
	// join, if not nil, reports whether the row that was read last must be in the same batch as the
	// row before it. If so, the batch may exceed its bounds. If join is set, even a full batch
	// waits for the next row.
	join func() bool

	current []R // rows of the batch that is not yet complete
	size    int // rows of the previous batch, the estimate for the next one
	cost    float64
	bytes   int64
	next    R // last row read, not yet in a batch; valid if hasNext
	hasNext bool
	err     error // error of reading; returned after the rows that precede it
}

// Pack returns a Producer of batches. It packs the rows that it gets from the function next. A
// Sender delivers, retries and settles a batch as one item. The item's Value has the rows in their
// order. Its Cost and Bytes are the sums over its rows. Its memory is not reused.
//
// next is called by one goroutine at a time, and returns io.EOF at the end of the rows. If it
// returns another error, the rows before the error are delivered first. If Linger is set, ctx ends
// when an incomplete batch is due. next must then soon return ctx's error, and must not drop a row
// that it has read: its next call returns this row. The error of Pack names an invalid option.
func Pack[R any](o PackOptions[R],
	next func(ctx context.Context) (R, error)) (Producer[[]R], error) {
	if next == nil {
		return nil, errors.New("flow: pack: there is no function that gives the rows")
	}
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	return &packer[R]{o: o, readRow: next}, nil
}

// checked returns o with its defaults, or an error that names an invalid option.
func (o PackOptions[R]) checked() (PackOptions[R], error) {
	switch {
	case o.Rows < 0 || o.Rows > maxPackRows:
		return o, fmt.Errorf("flow: pack: %d rows in a batch; want 1 to %d, or 0 for %d", o.Rows,
			maxPackRows, DefaultPackRows)
	case !(o.Cost >= 0) || math.IsInf(o.Cost, 0):
		return o, fmt.Errorf("flow: pack: batches of cost %v; want a number above 0, or 0 for "+
			"no bound", o.Cost)
	case o.Linger < 0:
		return o, fmt.Errorf("flow: pack: a linger of %v; want a time to wait, or 0 to wait "+
			"until a batch is full", o.Linger)
	}
	o.Rows = cmp.Or(o.Rows, DefaultPackRows)
	return o, nil
}

// Next implements Producer.
func (p *packer[R]) Next(ctx context.Context) (Item[[]R], error) {
	if len(p.current) == 0 && !p.hasNext {
		if p.err != nil {
			return Item[[]R]{}, p.err
		}
		row, err := p.readRow(ctx) // Linger does not bound the wait for the first row
		if err != nil {
			return Item[[]R]{}, err
		}
		p.next, p.hasNext = row, true
	}
	reading := ctx
	if p.o.Linger > 0 {
		var cancel context.CancelFunc
		reading, cancel = context.WithTimeout(ctx, p.o.Linger)
		defer cancel()
	}
	for p.addNext() && p.err == nil {
		row, err := p.readRow(reading)
		switch {
		case err == nil:
			p.next, p.hasNext = row, true
		case ctx.Err() != nil: // the current batch is kept
			return Item[[]R]{}, context.Cause(ctx)
		case reading.Err() != nil && errors.Is(err, reading.Err()):
			return p.batch(), nil
		default:
			p.err = err
		}
		if p.hasNext && reading.Err() != nil && ctx.Err() == nil {
			p.addNext() // the row came just as Linger ended
			return p.batch(), nil
		}
	}
	return p.batch(), nil
}

// addNext adds the row in p.next to the batch if it fits, and reports whether more rows may be read
// for the batch.
func (p *packer[R]) addNext() bool {
	if p.hasNext {
		cost := 1.0
		if p.o.CostOf != nil {
			cost = p.o.CostOf(p.next)
		}
		if !p.fits(cost) {
			return false
		}
		if len(p.current) == 0 {
			p.current = make([]R, 0, max(1, p.size))
		}
		p.current = append(p.current, p.next)
		p.cost += cost
		if p.o.BytesOf != nil {
			p.bytes += p.o.BytesOf(p.next)
		}
		var none R
		p.next, p.hasNext = none, false
	}
	return p.join != nil || len(p.current) < p.o.Rows && (p.o.Cost == 0 || p.cost < p.o.Cost)
}

// fits reports whether the row in p.next, which has this cost, may be added to the batch.
func (p *packer[R]) fits(cost float64) bool {
	n := len(p.current)
	switch {
	case n == 0, p.join != nil && p.join():
		return true
	case n >= p.o.Rows, p.o.Cost > 0 && p.cost+cost > p.o.Cost:
		return false
	}
	return p.o.Cut == nil || !p.o.Cut(p.current[n-1], p.next)
}

// batch returns the current batch.
func (p *packer[R]) batch() Item[[]R] {
	it := Item[[]R]{Value: p.current, Cost: p.cost, Bytes: p.bytes}
	p.current, p.size, p.cost, p.bytes = nil, len(p.current), 0, 0
	return it
}
