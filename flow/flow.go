// Package flow delivers items to many parallel, unequal, failing workers at the pace that each of them can
// bear.
//
// A [Sender] pulls items from a [Producer] when there is room, and hands them to [Worker]s as attempts. Every
// decision (how much may be in flight to whom, who gets the next item, when an attempt has timed out, what is
// sent again and when) is made by one pure machine, [control.Machine]; the Sender only feeds it events and
// carries out its commands. A Sender knows no record, no file and no position.
//
// A [Book] is a Sender that goes on after a crash: it packs rows into batches, knows by their positions which of them are
// settled, and saves that through a [Checkpoint], such as a file of [github.com/penstock-io/penstock/flow/checkpoint]. Who
// keeps positions in another way uses a Sender, learns from Options.Settled what is done, and may keep it in a ledger
// ([github.com/penstock-io/penstock/flow/ledger]).
//
// A [Receiver] is the other end: a server that tells its senders how much it will take.
//
// Delivery is at least once, always: an item is settled when a worker has delivered it or when it was buried,
// never by count or age.
package flow

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Item is a unit that travels and settles as a whole. The Sender owns it from Next until Options.Released.
type Item[T any] struct {
	Value T
	Cost  float64  // window units, such as records; 0 means 1. One item is always allowed, whatever it costs
	Bytes int64    // held against Options.MaxBytes and control.Config.Replay until settled and saved
	Keys  []string // items that share a key keep their order: never in flight together, but on an Ordered lane. nil: no order
}

// Attempt is one delivery of one item to one worker.
type Attempt[T any] struct {
	Value  T
	ID     uint64 // unique in the Sender
	Number int    // of this item; the first is 1

	// On Ordered lanes Place is dense from 0 within a Run and is the order of effect; Run only grows in a
	// Sender. Once one of a Run has failed, the rest of it must fail too; when all of it have returned, the
	// next Run starts with the failed item.
	Run, Place uint32

	// Expect is when the round trip is overdue: the worker counts as BUSY and another one is tried, while the
	// context lives on until Options.Abandon. Zero: never.
	Expect time.Time
}

// Report is what a worker says of itself with its answer; the zero value is a third party that says nothing.
type Report = control.Report

// Limits bound a lane whatever its window says.
type Limits = control.Limits

// Worker is one lane of delivery: an endpoint, a connection, a child process, a remote node.
type Worker[T any] interface {
	// Deliver returns once the receiver has the value for good, and keeps nothing of it afterwards, not even
	// in a goroutine of net/http: wait for the body's Close. It is called from up to Limits.InFlight
	// goroutines at once and in no particular order (on Ordered lanes, Place gives the order). ctx ends at
	// Options.Abandon or when the Sender stops; Deliver then returns soon.
	//
	// The error is the outcome: nil is delivered; *Throttled, *Rejected, *Misconfigured and *Split (in any
	// depth of wrapping) say what they say; any other error is retryable, *Died and a panic with consequences of their own.
	Deliver(ctx context.Context, a Attempt[T]) (Report, error)
}

// Lane is a worker as the Sender sees it.
type Lane[T any] struct {
	Name   string // unique; people read it in metrics and explain
	Worker Worker[T]
	Limits Limits

	// Prompt says that Deliver never waits: for no network, disk, timer or lock that somebody holds while waiting. It is then
	// called where the Sender turns, one call at a time, which saves two switches between goroutines; all other lanes stand still
	// meanwhile, and no ctx ends it. It must not call runtime.Goexit.
	Prompt bool
}

// Producer hands out items. It is asked for one at a time, and for one more than there is room for, which is then at hand.
type Producer[T any] interface {
	// Next blocks until there is an item, the data ends (io.EOF: what is in flight is finished, then Run
	// returns nil) or ctx is done. It runs on a goroutine of its own, one call at a time. Any other error
	// stops the Sender once what is in flight has settled.
	Next(ctx context.Context) (Item[T], error)
}

// Settlement says how an item was settled.
type Settlement struct {
	Attempts int    // that were started
	Lane     string // that delivered it; "" when it was buried
	Place    string // Report.Place of the delivering attempt
	Buried   bool   // a dead letter: Options.Bury made it durable
}

// Failure is an attempt that did not deliver.
type Failure struct {
	Lane    string
	Number  int             // of the attempt; the item's first is 1
	Outcome control.Outcome // Misconfigured is the one that people must look at
	Err     error           // what Deliver returned; a *PanicError where it panicked
	Died    bool            // the worker died of the item, or of the piece that a Split names
}

// Options is what a Sender needs. Lanes and Settled are required. What is called on the loop is called by the goroutine of
// Run, or by the one that has just come from Next, Deliver or Bury, one call at a time; a panic in it comes out of
// Run, as a *PanicError.
type Options[T any] struct {
	Lanes   []Lane[T]      // may be empty at first: SetLanes
	Control control.Config // window, dispatch, timeouts, breaker, budget, replay bound
	// MaxBytes closes the gate when items not yet settled hold so much; the item that reaches it is the last, so one item
	// more than this at most. 0 means 32 MiB; negative: the producer bounds it, as the engine does.
	MaxBytes int64
	Abandon  time.Duration // hard end of an attempt; 0 means 60 s

	// Bisect cuts an item that was refused into pieces that stand in its place, in order. nil, or fewer than
	// two pieces: it cannot be cut and is buried whole. It is called on the loop and never while an attempt
	// of the item runs.
	Bisect func(it Item[T], refusal error) []Item[T]
	// Bury makes a refused item durable elsewhere before it returns; an error stops the Sender. It runs on a
	// goroutine of its own, one call at a time. nil: a refusal stops the Sender, and an item of which workers die, or which
	// Control.Poison would refuse otherwise, is tried for ever.
	Bury func(ctx context.Context, it Item[T], refusal error) error
	// Settled is called once for each item, on the loop: it must not block.
	Settled func(it Item[T], s Settlement)
	// Failed is called on the loop for each attempt that did not deliver, but for those that the Sender ended
	// itself because their item had settled or it stops. It is the one place where the error of a retryable
	// attempt is seen: log it there. It may be nil and must not block.
	Failed func(it Item[T], f Failure)
	// Released is called once for each item that the Sender has ever held (from Next, Bisect or Split), after
	// its settle or its replacement by pieces, when no attempt of it runs any more, and for what is left over
	// when Run ends: now its memory may be reused. It may be nil and must not block.
	Released func(it Item[T])
	// Trace, when set, is called on the loop with every event and the commands that the machine answered, before they are
	// carried out. What it is given is valid during the call only; it must not block.
	Trace func(e *control.Event, do []control.Command)
}
