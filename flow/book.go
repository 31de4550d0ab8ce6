package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/supervise"
)

// Checkpoint stores the progress of a partition durably: the watermark, up to which every row is
// settled, and the settled ranges above it, as [ledger.Ledger.Progress] returns them. Package
// [github.com/penstock-io/penstock/flow/checkpoint] implements a Checkpoint in a file. Use its
// Encode and Decode to implement one in a database. A Book calls its Checkpoint from one goroutine
// at a time.
type Checkpoint interface {
	// Load returns the progress saved last, or the zero position if none was ever saved. A failure
	// to read must be returned as an error, never as the zero position.
	Load(ctx context.Context) (watermark ledger.Position, above []ledger.Range, err error)
	// Save replaces the progress and returns when the new progress is durable. A crash at any time
	// must leave either the old or the new progress. Save must not retain the slice of ranges. ctx
	// ends after a minute.
	Save(ctx context.Context, watermark ledger.Position, above []ledger.Range) error
}

// Defaults of BookOptions.
const (
	DefaultReplay = 100_000     // rows
	DefaultSave   = time.Second // between two saves
)

// saveBound is the time limit for one call of Checkpoint.Save.
const saveBound = time.Minute

// BookOptions configures a Book. Checkpoint, At and Sender.Lanes are required.
type BookOptions[R any] struct {
	Checkpoint Checkpoint // stores the progress; required

	// At returns the position of a row, such as its time, key or offset. Positions never decrease
	// from row to row and are greater than the zero Position. At most MaxTies rows may have the
	// same position. They are sent in one batch. At is called several times per row, by several
	// goroutines at once, and must return the same position each time.
	At func(row R) ledger.Position
	// Set Unique if no two rows have the same position. If two do nevertheless, Run returns an
	// error. If Unique is false, even a full batch waits for the next row, at most Pack.Linger,
	// because this row must be in the same batch if it has the same position.
	Unique bool

	// Pack bounds the batches.
	Pack PackOptions[R]

	// Replay bounds the rows that a crash can repeat: the rows in flight, and the settled rows that
	// are not saved yet. If Pack.BytesOf is set, Replay counts bytes, and zero means 32 MiB.
	// Otherwise it counts rows, and zero means 100,000. One batch is always allowed, even if it is
	// larger than Replay.
	Replay int64
	// Save is the interval between two saves. The Book saves earlier in two cases: the rows settled
	// since the last save reach a quarter of Replay, or Replay leaves too little room for another
	// batch. Zero means 1 s.
	Save time.Duration

	// Sender configures the Book's sender: lanes, windows, DeadLetter, Failed. If Sender.Settled is
	// not nil, it is called on the loop, after the Book has recorded that the batch, or a part of
	// the batch, is settled. If Bisect is nil, the Book halves a refused batch until it has found
	// the refused row. If Pack.BytesOf is nil, MaxBytes counts rows. Control.Replay must be 0: set
	// BookOptions.Replay instead. Withdrawn must be nil.
	Sender Options[[]R]
}

// Book delivers rows in batches to many workers, and stores the settled rows in a [Checkpoint]. A
// row is settled when a worker has delivered it or DeadLetter has stored it. A program that crashes
// resumes from the same Checkpoint.
//
// No row is lost: only settled rows are part of the saved progress. A crash repeats at most
// BookOptions.Replay. Rows that were settled and saved are not delivered again, even if rows before
// them were not settled. As with any Sender, a row is also repeated if a Worker delivers it and
// then reports a failure.
//
// A Book handles one partition of rows. Its methods are safe for concurrent use. A Book needs no
// Close. The caller closes the Checkpoint.
type Book[R any] struct {
	o       BookOptions[R]
	sender  *Sender[[]R]
	saveNow chan struct{} // holds one: save now
	room    chan struct{} // holds one: the ledger has room again
	started atomic.Bool   // Run was called

	next   func(context.Context) (R, error) // Run sets next and fail before it starts goroutines
	fail   context.CancelCauseFunc
	filter duplicateFilter // the goroutine that reads the rows owns both
	rows   packer[R]
	ranges []ledger.Range // buffer of save, which one goroutine calls at a time

	mu      sync.Mutex // guards the fields below; only At is called under it
	tracker progressTracker[R]
}

// OpenBook loads the progress and returns a Book that resumes from it. It starts no goroutine. The
// error names an invalid option, wraps the error of Checkpoint.Load, or states why the loaded
// progress is invalid.
func OpenBook[R any](ctx context.Context, o BookOptions[R]) (*Book[R], error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	b := &Book[R]{o: o, saveNow: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	so := o.Sender
	so.Settled = b.settled
	if so.Bisect == nil {
		so.Bisect = b.halve
	}
	so.Control.Replay = o.Replay
	sender, err := New(so)
	if err != nil {
		return nil, err
	}
	watermark, above, err := o.Checkpoint.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("flow: book: %w", err)
	}
	l, err := ledger.New(watermark, above)
	if err != nil {
		return nil, fmt.Errorf("flow: book: resume from the checkpoint: %w", err)
	}
	b.sender, b.tracker = sender, progressTracker[R]{at: o.At, ledger: l}
	b.filter.unique = o.Unique
	b.filter.watermark, b.filter.ahead = l.Progress()
	cut := o.Pack.Cut
	o.Pack.Cut = func(last, next R) bool { return b.filter.gap || cut != nil && cut(last, next) }
	b.rows = packer[R]{o: o.Pack, readRow: b.read}
	if !o.Unique {
		b.rows.join = func() bool { return b.filter.ties > 1 }
	}
	return b, nil
}

// complete fills in the defaults. The error names an invalid option.
func (o *BookOptions[R]) complete() (err error) {
	switch {
	case o.Checkpoint == nil:
		return errors.New("flow: book: BookOptions.Checkpoint is nil; it is where a restart " +
			"learns what is settled")
	case o.At == nil:
		return errors.New("flow: book: BookOptions.At is nil; it must return the position of a row")
	case o.Replay < 0:
		return fmt.Errorf("flow: book: BookOptions.Replay is %d; want a number above 0, or 0 for "+
			"the default", o.Replay)
	case o.Save < 0:
		return fmt.Errorf("flow: book: BookOptions.Save is %v; want a duration, or 0 for %v",
			o.Save, DefaultSave)
	case o.Sender.Control.Replay != 0:
		return errors.New(
			"flow: book: Sender.Control.Replay is set; set BookOptions.Replay instead")
	case o.Sender.Withdrawn != nil:
		return errors.New("flow: book: Sender.Withdrawn is set; a Book delivers every row, " +
			"because its progress cannot leave out withdrawn ones")
	}
	if o.Pack, err = o.Pack.checked(); err != nil {
		return err
	}
	if o.Replay == 0 {
		o.Replay = DefaultReplay
		if o.Pack.BytesOf != nil {
			o.Replay = DefaultMaxBytes
		}
	}
	if o.Pack.BytesOf == nil {
		o.Pack.BytesOf = func(R) int64 { return 1 }
	}
	o.Save = cmp.Or(o.Save, DefaultSave)
	return nil
}

// Run delivers the rows that it gets from the function next, until io.EOF. It returns nil when all
// are settled and saved. It may be called once.
//
// next returns the rows in the order of their positions. It starts at the watermark of
// [Book.Progress]: its first row is the row after the watermark, or an earlier one. Run skips rows
// that were settled before the restart, so next may ignore the settled ranges. Run calls next from
// one goroutine at a time. next must return ctx's error soon after ctx is done.
//
// If Pack.Linger is set, the ctx of next also ends when a batch has waited for that time. Run then
// calls next again later, so next must not drop a row that it has read. A row with an invalid
// position (see BookOptions.At) ends Run at once, and Run saves nothing more: the next run reads
// that row again.
//
// When the ctx of Run is done, Run abandons the batches in flight, saves and returns
// context.Cause(ctx). After an error of next, Run finishes the batches in flight first. If a Save
// fails, Run returns its error, and the next run repeats the rows settled since the last successful
// Save. A Checkpoint with temporary failures should retry by itself (package retry). Run does not
// catch a panic in an option that runs on the loop, and saves nothing after it.
func (b *Book[R]) Run(ctx context.Context, next func(ctx context.Context) (R, error)) error {
	if next == nil {
		return errors.New("flow: book: there is no function that gives the rows")
	}
	if b.started.Swap(true) {
		return errors.New("flow: book: Run was called before; open a new Book")
	}
	group := supervise.NewGroup(ctx)
	ctx, b.fail = context.WithCancelCause(group.Context())
	defer b.fail(nil)
	b.next = next
	group.Go("checkpoint", b.saveRegularly)
	end := func() error {
		group.Stop(nil)
		return group.Wait()
	}
	defer func() { _ = end() }() // also when a callback panics
	err := b.sender.Run(ctx, ProducerFunc[[]R](b.produce))
	if err == nil {
		// An error of b.tracker (an invalid row or piece) normally ends the sender. But if the last
		// rows to settle caused the error, the sender may have returned nil without noticing it.
		err = b.broken()
	}
	if saveErr := end(); saveErr != nil { // it has ended the sender; save nothing more
		return fmt.Errorf("flow: book: %w", saveErr)
	}
	if saveErr := b.save(ctx); saveErr != nil {
		err = errors.Join(err, fmt.Errorf("flow: book: %w", saveErr))
	}
	return err
}

// saveRegularly saves the progress every BookOptions.Save, and at each signal of b.saveNow. It
// returns nil when its context ends. Run then saves the rest. The error of a failed save ends Run.
func (b *Book[R]) saveRegularly(ctx context.Context) error {
	tick := time.NewTicker(b.o.Save)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.saveNow:
		case <-tick.C:
		}
		if err := b.save(ctx); err != nil {
			return err
		}
	}
}

func (b *Book[R]) save(ctx context.Context) error {
	b.mu.Lock()
	watermark, above, bytes, ok := b.tracker.takeProgress(b.ranges[:0])
	b.mu.Unlock()
	if !ok {
		return nil
	}
	b.ranges = above
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveBound)
	defer cancel()
	if err := b.o.Checkpoint.Save(ctx, watermark, above); err != nil {
		return err
	}
	b.sender.Saved(bytes)
	return nil
}

// produce returns the next batch, and enters it in the ledger as unsettled.
func (b *Book[R]) produce(ctx context.Context) (Item[[]R], error) {
	if err := b.awaitRoom(ctx); err != nil {
		return Item[[]R]{}, err
	}
	it, err := b.rows.Next(ctx)
	if err == nil {
		err = b.openBatch(it)
	}
	return it, err
}

// awaitRoom waits until the ledger, which has a bounded size, has room for another batch.
func (b *Book[R]) awaitRoom(ctx context.Context) error {
	for {
		b.mu.Lock()
		hasRoom := b.tracker.ledger.Room()
		b.mu.Unlock()
		if hasRoom {
			return nil
		}
		select {
		case <-b.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *Book[R]) openBatch(it Item[[]R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	end, err := b.tracker.open(it, b.filter.newest)
	if err != nil {
		return err
	}
	b.filter.out = end
	wake(b.saveNow, b.tracker.due(b.o.Replay))
	return nil
}

// read returns the next row that is not settled.
func (b *Book[R]) read(ctx context.Context) (R, error) {
	for {
		row, err := b.next(ctx)
		if err != nil {
			return row, err
		}
		deliver, err := b.filter.mustDeliver(b.o.At(row))
		if err != nil {
			return row, b.endRun(err)
		}
		if deliver {
			return row, nil
		}
		if ctx.Err() != nil { // next need not return the skipped row again
			return row, ctx.Err()
		}
	}
}

// endRun ends the run at once for a row with an invalid position. The Book then saves nothing more:
// a saved watermark might be past the row, and the next run would then skip the row silently.
func (b *Book[R]) endRun(err error) error {
	err = fmt.Errorf("flow: book: %w", err)
	b.mu.Lock()
	b.tracker.broken = err
	b.mu.Unlock()
	b.fail(err)
	return err
}

func (b *Book[R]) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tracker.broken
}

// settled implements Options.Settled of the sender.
func (b *Book[R]) settled(it Item[[]R], s Settlement) {
	if err := b.recordSettled(it); err != nil {
		_ = b.endRun(err)
	}
	if b.o.Sender.Settled != nil {
		b.o.Sender.Settled(it, s)
	}
}

func (b *Book[R]) recordSettled(it Item[[]R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := !b.tracker.ledger.Room()
	err := b.tracker.settle(it)
	wake(b.saveNow, b.tracker.due(b.o.Replay))
	wake(b.room, full && b.tracker.ledger.Room())
	return err
}

// wake sends a signal to c if should is true. It does nothing if the previous signal has not been
// received.
func wake(c chan struct{}, should bool) {
	if should {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// halve is the default of Options.Bisect. It returns the two halves of a refused batch, or nil if
// the batch has a single row.
func (b *Book[R]) halve(it Item[[]R], _ error) []Item[[]R] {
	n := len(it.Value)
	if n < 2 {
		return nil
	}
	return []Item[[]R]{b.Piece(it.Value[: n/2 : n/2]), b.Piece(it.Value[n/2:])}
}

// Piece returns an item with some rows of a batch, for a [Split] or for Options.Bisect. It computes
// the cost and bytes as Pack does.
func (b *Book[R]) Piece(rows []R) Item[[]R] {
	it := Item[[]R]{Value: rows, Cost: float64(len(rows))}
	if b.o.Pack.CostOf != nil {
		it.Cost = 0
	}
	for _, row := range rows {
		if b.o.Pack.CostOf != nil {
			it.Cost += b.o.Pack.CostOf(row)
		}
		it.Bytes += b.o.Pack.BytesOf(row)
	}
	return it
}

// Progress returns the progress of the Book. Before Run, this is the loaded progress. Later it is
// the current progress, which may be ahead of the saved progress. Read rows from the watermark on.
// The caller may modify the ranges.
func (b *Book[R]) Progress() (watermark ledger.Position, above []ledger.Range) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tracker.ledger.Progress()
}

// Sender returns the Book's sender, so that the caller can call Status and SetLanes. Do not call
// Run or Saved on it.
func (b *Book[R]) Sender() *Sender[[]R] { return b.sender }
