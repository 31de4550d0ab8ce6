package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/supervise"
)

// Checkpoint keeps a mark where a crash does not reach it: the watermark, up to which every row is settled, and the settled
// ranges above it, as [ledger.Ledger.Mark] gives them. [github.com/penstock-io/penstock/flow/checkpoint] has one in a file; its
// Encode and Decode help to write one for a database. A Book calls it from one goroutine at a time.
type Checkpoint interface {
	// Load returns the mark that was saved last, and the zero position where none ever was. An error must not be taken for that.
	Load(ctx context.Context) (watermark ledger.Position, above []ledger.Range, err error)
	// Save replaces the mark, and returns when neither a crash of the program nor of the machine loses it: the old one or
	// the new one is left whole whenever it is cut off. It keeps nothing of above. ctx ends after a minute.
	Save(ctx context.Context, watermark ledger.Position, above []ledger.Range) error
}

// Defaults of BookOptions.
const (
	DefaultReplay = 100_000     // rows
	DefaultSave   = time.Second // between two saves
)

// saveBound ends the context of a Save.
const saveBound = time.Minute

// BookOptions is what a Book needs. Checkpoint, At and Sender.Lanes are required.
type BookOptions[R any] struct {
	Checkpoint Checkpoint

	// At says where a row stands: its time, its key, its offset. Positions never decrease from row to row and lie
	// behind the zero Position. Rows may share one; they then travel in one batch, at most MaxTies of them. It is called
	// several times for a row, from several goroutines, and says the same each time.
	At func(row R) ledger.Position
	// Unique says that no two rows share a position, which is then an error. Else a full batch waits for the row behind it, for
	// Pack.Linger at most, because that one may belong to it.
	Unique bool

	// Pack says when a batch is full.
	Pack PackOptions[R]

	// Replay is what is in flight, or settled and not yet saved, at most, and so what a crash repeats: bytes, where
	// Pack.BytesOf says what a row has, else rows. One batch is always allowed. 0 means 100,000 rows, or 32 MiB.
	Replay int64
	// Save is how long what has settled waits for its save at most; a quarter of Replay waits no longer. 0 means 1 s.
	Save time.Duration

	// Sender is what the sender under the Book gets: lanes, windows, Bury, Failed. Its Settled is called after the
	// Book has noted the batch or piece, on the loop, and may be nil. Where Bisect is nil, a refused batch is halved until the
	// refused row is found. Where Pack.BytesOf is nil, MaxBytes counts rows. Control.Replay must be 0: Replay above is it.
	Sender Options[[]R]
}

// Book delivers rows in the order of their positions, in batches, to many workers, and keeps in a [Checkpoint] which of
// them are settled: a program that crashes, and is started again with the same Checkpoint, goes on where it was.
//
// No row is lost: it is in the saved mark only after a worker has delivered it, or Bury has. A crash repeats at most
// BookOptions.Replay; what had settled and was saved is not delivered again, also where rows before it were not. (A Worker
// that says it failed and did not, or that outlives its attempt, repeats besides, as with any Sender.)
//
// A Book is one partition of rows. Its methods are safe for concurrent use. It owns nothing that has to be closed; its
// Checkpoint is the caller's.
type Book[R any] struct {
	o      BookOptions[R]
	sender *Sender[[]R]
	due    chan struct{} // holds one: save now
	room   chan struct{} // holds one: the ledger has room again

	next  func(context.Context) (R, error) // set by Run before it starts anything, as is fail
	fail  context.CancelCauseFunc
	sieve sieve // of the goroutine that reads, as is rows
	rows  packer[R]
	marks []ledger.Range // memory of who saves, one at a time

	mu      sync.Mutex // guards what follows; nothing but At is called under it
	account account[R]
	started bool
}

// OpenBook loads the mark and returns a Book that goes on from there. It starts nothing. An error says which option
// means nothing, or why the Checkpoint could not be loaded.
func OpenBook[R any](ctx context.Context, o BookOptions[R]) (*Book[R], error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	b := &Book[R]{o: o, due: make(chan struct{}, 1), room: make(chan struct{}, 1)}
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
	b.sender, b.account = sender, account[R]{at: o.At, ledger: l}
	b.sieve.unique = o.Unique
	b.sieve.watermark, b.sieve.ahead = l.Mark()
	cut := o.Pack.Cut
	o.Pack.Cut = func(last, next R) bool { return b.sieve.gap || cut != nil && cut(last, next) }
	b.rows = packer[R]{o: o.Pack, read: b.read}
	if !o.Unique {
		b.rows.join = func() bool { return b.sieve.ties > 1 }
	}
	return b, nil
}

// complete fills in the defaults, or says which option means nothing.
func (o *BookOptions[R]) complete() (err error) {
	switch {
	case o.Checkpoint == nil:
		return errors.New("flow: book: BookOptions.Checkpoint is nil; it is where a restart learns what is settled")
	case o.At == nil:
		return errors.New("flow: book: BookOptions.At is nil; it says where a row stands")
	case o.Replay < 0:
		return fmt.Errorf("flow: book: BookOptions.Replay is %d; want a number above 0, or 0 for the default", o.Replay)
	case o.Save < 0:
		return fmt.Errorf("flow: book: BookOptions.Save is %v; want a duration, or 0 for %v", o.Save, DefaultSave)
	case o.Sender.Control.Replay != 0:
		return errors.New("flow: book: Sender.Control.Replay is set; set BookOptions.Replay instead")
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
	if o.Save == 0 {
		o.Save = DefaultSave
	}
	return nil
}

// Run delivers what next gives until io.EOF, and returns nil when every row has settled and the mark is saved. It may be
// called once.
//
// next gives the rows behind the watermark of [Book.Mark] in the order of their positions. Those that had settled before
// the restart are passed over, so it may begin earlier, too, and need not look at the ranges. It is called by one goroutine
// at a time, only when there is room, and must return ctx's error soon when ctx is done; where Pack.Linger is set it must not
// have taken a row then, because it is called again. A row that stands where none may (BookOptions.At) ends Run at once, and
// no mark is saved any more: the next run meets that row again.
//
// When ctx is done, what is in flight is abandoned and the mark is saved; Run returns context.Cause(ctx). An error of
// next lets what is in flight settle first. Where a Save fails, Run ends with its error, and what had settled since the last
// one comes again: a Checkpoint that may succeed later tries again itself (package retry). A panic in an option that runs on
// the loop is not caught, and nothing is saved after it.
func (b *Book[R]) Run(ctx context.Context, next func(ctx context.Context) (R, error)) error {
	if next == nil {
		return errors.New("flow: book: there is no function that gives the rows")
	}
	b.mu.Lock()
	again := b.started
	b.started = true
	b.mu.Unlock()
	if again {
		return errors.New("flow: book: Run was called before; open a new Book")
	}
	group := supervise.NewGroup(ctx)
	ctx, b.fail = context.WithCancelCause(group.Context())
	defer b.fail(nil)
	b.next = next
	group.Go("checkpoint", b.keep)
	end := func() error {
		group.Stop(nil)
		return group.Wait()
	}
	defer func() { _ = end() }() // also when a callback panics
	err := b.sender.Run(ctx, ProducerFunc[[]R](b.produce))
	if err == nil {
		err = b.broken() // by what settled last, and the sender had nothing more to stop for
	}
	if kept := end(); kept != nil { // it has ended the sender, and nothing is saved after it
		return fmt.Errorf("flow: book: %w", kept)
	}
	if last := b.save(ctx); last != nil {
		err = errors.Join(err, fmt.Errorf("flow: book: %w", last))
	}
	return err
}

// keep saves the mark whenever something has settled for so long, or so much. It ends with its context; Run saves the rest.
func (b *Book[R]) keep(ctx context.Context) error {
	tick := time.NewTicker(b.o.Save)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.due:
		case <-tick.C:
		}
		if err := b.save(ctx); err != nil {
			return err
		}
	}
}

func (b *Book[R]) save(ctx context.Context) error {
	b.mu.Lock()
	watermark, above, bytes, ok := b.account.take(b.marks[:0])
	b.mu.Unlock()
	if !ok {
		return nil
	}
	b.marks = above
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveBound)
	defer cancel()
	if err := b.o.Checkpoint.Save(ctx, watermark, above); err != nil {
		return err
	}
	b.sender.Saved(bytes)
	return nil
}

// produce hands out the next batch and opens it in the ledger.
func (b *Book[R]) produce(ctx context.Context) (Item[[]R], error) {
	if err := b.await(ctx); err != nil {
		return Item[[]R]{}, err
	}
	it, err := b.rows.Next(ctx)
	if err == nil {
		err = b.begin(it)
	}
	return it, err
}

// await waits until the ledger takes a batch more.
func (b *Book[R]) await(ctx context.Context) error {
	for {
		b.mu.Lock()
		roomy := b.account.ledger.Room()
		b.mu.Unlock()
		if roomy {
			return nil
		}
		select {
		case <-b.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *Book[R]) begin(it Item[[]R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	end, err := b.account.begin(it, b.sieve.newest)
	if err != nil {
		return err
	}
	b.sieve.out = end
	wake(b.due, b.account.due(b.o.Replay))
	return nil
}

// read gives the next row that is to be delivered.
func (b *Book[R]) read(ctx context.Context) (R, error) {
	for {
		row, err := b.next(ctx)
		if err != nil {
			return row, err
		}
		deliver, err := b.sieve.take(b.o.At(row))
		if err != nil {
			return row, b.breakOff(err)
		}
		if deliver {
			return row, nil
		}
		if ctx.Err() != nil { // the row that was passed over need not come again
			return row, ctx.Err()
		}
	}
}

// breakOff ends the run at once for a row that stands where none may. No mark is saved any more: one that lay behind the row would
// make the next run pass it over without a word.
func (b *Book[R]) breakOff(err error) error {
	err = fmt.Errorf("flow: book: %w", err)
	b.mu.Lock()
	b.account.broken = err
	b.mu.Unlock()
	b.fail(err)
	return err
}

func (b *Book[R]) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account.broken
}

// settled is the sender's Settled.
func (b *Book[R]) settled(it Item[[]R], s Settlement) {
	if err := b.note(it); err != nil {
		_ = b.breakOff(err)
	}
	if b.o.Sender.Settled != nil {
		b.o.Sender.Settled(it, s)
	}
}

func (b *Book[R]) note(it Item[[]R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := !b.account.ledger.Room()
	err := b.account.settle(it)
	wake(b.due, b.account.due(b.o.Replay))
	wake(b.room, full && b.account.ledger.Room())
	return err
}

// wake signals c where it should; one signal waits at most.
func wake(c chan struct{}, should bool) {
	if should {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// halve is the Bisect of who gives none.
func (b *Book[R]) halve(it Item[[]R], _ error) []Item[[]R] {
	n := len(it.Value)
	if n < 2 {
		return nil
	}
	return []Item[[]R]{b.Piece(it.Value[: n/2 : n/2]), b.Piece(it.Value[n/2:])}
}

// Piece makes the item of some rows of a batch, for a [Split] or for Options.Bisect, with the cost and the bytes that Pack gives
// them.
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

// Mark returns what is settled: before Run what the Checkpoint held, then as it is now, which the Checkpoint learns
// later. Rows are to be read from the watermark on. The ranges are the caller's.
func (b *Book[R]) Mark() (watermark ledger.Position, above []ledger.Range) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account.ledger.Mark()
}

// Sender returns the sender under the Book, for its Status and SetLanes. Run and Saved are the Book's to call.
func (b *Book[R]) Sender() *Sender[[]R] { return b.sender }
