// Package flow delivers items to many parallel, unequal, failing workers, each at the pace that it
// can sustain.
//
//	err := flow.Each(ctx, slices.Values(lines), urls, func(ctx context.Context, url, line string) error {
//		resp, err := post(ctx, url, line)
//		if err != nil {
//			return err // the line is sent again, to any of the URLs
//		}
//		defer resp.Body.Close()
//		return flow.HTTPOutcome(resp)
//	})
//
// [Each] delivers the values of an iterator, and returns when all are delivered. It cannot resume
// after a crash of the program. [HTTPOutcome] turns a response into an outcome.
//
// A [Book] resumes after a crash. It packs rows into batches, tracks the settled rows (delivered or
// dead-lettered) by their positions, and saves this progress in a [Checkpoint], such as a file of
// [github.com/penstock-io/penstock/flow/checkpoint].
//
// A [Sender] is the part that both have in common, with all options. It pulls items from a
// [Producer] when there is room, and passes them to [Worker]s. The state machine [control.Machine]
// makes all decisions: windows, dispatch, timeouts and retries. The Sender feeds it events and
// carries out its commands. A Sender does not know records, files or positions. To save progress
// that does not fit a Book, record each call of Options.Settled in a ledger
// ([github.com/penstock-io/penstock/flow/ledger]).
//
// A [Receiver] is the other side: a server that advertises to its senders how much each may have in
// flight.
//
// # Terms
//
// A lane is a worker's place in the Sender: an endpoint, a connection, a process. An attempt is one
// call of a worker with an item. An item is settled when a worker has delivered it, or when it has
// been dead-lettered or withdrawn. Neither the number of its attempts nor its age settles an item,
// unless End or Poison of control.Config sets a limit. Delivery is at least once.
//
// The package needs no real time: everything runs under testing/synctest.
package flow

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Item is a unit that is delivered and settled as a whole. The Sender owns it from Next until
// Options.Released.
type Item[T any] struct {
	Value T // passed to the worker
	// Cost is the item's share of a window, in units such as records. 0 means 1. A window always
	// admits one item, regardless of its cost.
	Cost float64
	// Bytes counts against Options.MaxBytes until the item is settled. It counts against
	// control.Config.Replay until the settled item has also been saved.
	Bytes int64
	// Keys order items: two items with a common key are delivered in the order in which Next
	// returned them. They are never in flight at the same time, except on an Ordered lane.
	Keys []string
}

// Attempt is one delivery of one item to one worker.
type Attempt[T any] struct {
	Value  T      // value of the item
	ID     uint64 // unique in the Sender
	Number int    // number of this attempt of the item, from 1

	// On an Ordered lane, attempts must take effect in the order of these numbers: by Run, then by
	// Index. A Run is a series of attempts up to a failure, and Index counts from 0 in it. After a
	// failed attempt, all later attempts with the same Run must fail, too. When all have returned,
	// the failed item gets the next, higher Run. Example: three attempts have the same Run and the
	// Index 0, 1 and 2. If the one with Index 1 fails, the one with Index 2 must fail as well. Both
	// items are sent again in the next Run, with Index 0 and 1.
	Run, Index uint32

	// Expect is the time from which the attempt is overdue. An overdue attempt may narrow the
	// worker's window (its state is then BUSY), and the Sender tries the item again, perhaps at
	// another worker. But it does not try an item with Keys again before the attempt has returned.
	// The context of the attempt ends later, when Options.Abandon has passed. Zero means that the
	// attempt is never overdue.
	Expect time.Time
}

// Report has a worker's statements about itself, such as its free capacity. A worker without
// statements returns the zero value.
type Report = control.Report

// Limits bound a lane in addition to its window.
type Limits = control.Limits

// Worker is one lane of delivery: an endpoint, a connection, a child process, a remote node.
type Worker[T any] interface {
	// Deliver returns when the receiver has stored the value. It must not use the value after it
	// has returned, not even in a goroutine of net/http: an implementation that posts the value
	// waits until net/http has closed the request body. Up to Limits.InFlight goroutines call
	// Deliver at once, in no particular order. On an Ordered lane, Attempt.Index gives the order in
	// which they must take effect. ctx ends when Options.Abandon has passed, and earlier if the
	// Sender cancels the attempt, for example because another one has delivered the item. Deliver
	// must then return soon.
	//
	// The error is the outcome, wrapped or not. Nil means delivered. The types *Throttled,
	// *Rejected, *Misconfigured, *Split and *Died describe the other outcomes. A panic counts as
	// *Died. After any other error the item is tried again.
	Deliver(ctx context.Context, a Attempt[T]) (Report, error)
}

// Lane is a worker with its name and limits.
type Lane[T any] struct {
	Name   string // unique; shown in metrics and logs
	Worker Worker[T]
	Limits Limits // zero: only the window limits the lane

	// Inline means that Deliver never waits for a network, disk, timer or contended lock. The
	// goroutine that runs the event loop then calls Deliver itself, which saves two switches
	// between goroutines. During the call the loop serves no other lane, and only the end of Run's
	// context ends the context of the attempt. Deliver must not call runtime.Goexit.
	Inline bool
}

// Producer returns the items. The Sender requests one item at a time. It requests one item more
// than fits into its limits, and holds this item until it fits.
type Producer[T any] interface {
	// Next blocks until there is an item, the data ends or ctx is done. The error io.EOF ends the
	// data: the items in flight are finished, then Run returns nil. Any other error stops the
	// Sender when the items in flight have settled. Next is called on a goroutine of its own, one
	// call at a time.
	Next(ctx context.Context) (Item[T], error)
}

// Settlement describes how an item was settled.
type Settlement struct {
	Attempts     int    // number of attempts that were started
	Lane         string // name of the lane that delivered the item; "" if none did
	ResumeToken  string // Report.ResumeToken of the delivering attempt
	DeadLettered bool   // Options.DeadLetter has stored it
	// Withdrawn means that the item was not delivered and will not be delivered by this Sender; see
	// Options.Withdrawn. Do not report its Bytes to Sender.Saved.
	Withdrawn bool
}

// Withdrawal is the decision of [Options].Withdrawn about one item.
type Withdrawal uint8

// The withdrawals.
const (
	NotWithdrawn Withdrawal = iota
	// StopSending starts no further attempt of the item. The running attempts may still deliver it.
	StopSending
	// CancelAttempts has the effect of StopSending, and also ends the contexts of the running
	// attempts with the cause [ErrWithdrawn].
	CancelAttempts
)

// Failure is an attempt that did not deliver.
type Failure struct {
	Lane    string          // its name
	Number  int             // number of this attempt of the item, from 1
	Outcome control.Outcome // Misconfigured needs an operator
	// Err is the error of Deliver, or a *PanicError if it panicked. If the attempt took longer than
	// Options.Abandon, Err also wraps ErrAbandoned.
	Err  error
	Died bool // the item, or the piece named by Split.Died, killed the worker
}

// Options configures a Sender. Lanes are required, but may be set later by SetLanes.
//
// The functions that are documented as called on the loop are called one at a time, and must not
// block. The goroutine that runs the event loop calls them: that of Run, or one that has just
// returned from Producer.Next, Deliver, DeadLetter or WaitStore.Next. A panic in one of them makes
// Run panic with a *PanicError.
type Options[T any] struct {
	// Lanes are the workers. Their names must be unique.
	Lanes []Lane[T]
	// Control configures windows, dispatch, timeouts, breaker and retry budget, and the bound on
	// the data that a crash repeats (Replay). A nil Window means window.Queue{}.
	Control control.Config
	// MaxBytes bounds the total Bytes of unsettled items. While the total is at least MaxBytes, the
	// Sender requests no further item. Zero means 32 MiB. A negative value means no bound: the
	// producer must then bound the unsettled items.
	MaxBytes int64
	// Abandon is the time after which the context of an attempt ends. Zero means 60 s.
	Abandon time.Duration
	// AwaitRepair makes Run continue while every lane is misconfigured. The Sender then probes each
	// lane from time to time until one is repaired. If AwaitRepair is false, Run returns the reason
	// as soon as the last attempt of every lane was Misconfigured.
	AwaitRepair bool

	// Bisect cuts a refused item into pieces that replace it, in order. If it returns fewer than
	// two pieces, or if Bisect is nil, the item is dead-lettered as a whole. It is called on the
	// loop, and never while an attempt of the item runs.
	Bisect func(it Item[T], refusal error) []Item[T]
	// DeadLetter stores a refused item durably as a dead letter before it returns nil. An error
	// stops the Sender. It is called on a goroutine of its own, one call at a time.
	//
	// If DeadLetter is nil, a refusal by a worker stops the Sender. The Sender itself then refuses
	// no item: the limits Control.Poison and Control.End have no effect, and an item is tried
	// forever, even if it kills workers.
	DeadLetter func(ctx context.Context, it Item[T], refusal error) error
	// Waiting, if not nil, stores items that wait long for their next attempt. Two Senders must not
	// share it.
	Waiting WaitStore[T]
	// Settled, if not nil, is called on the loop once for each item that settles. An item that is
	// replaced by pieces does not settle: its pieces do.
	Settled func(it Item[T], s Settlement)
	// Failed, if not nil, is called on the loop for each attempt that did not deliver. It is also
	// called for an attempt that took longer than Abandon, but not for one that the Sender canceled
	// for another reason, such as its own end. ctx is derived from the context of Run. If the item
	// is tried again, the error of the attempt is reported nowhere else. LogTo returns a Failed
	// that logs it.
	Failed func(ctx context.Context, it Item[T], f Failure)
	// Withdrawn, if not nil, decides whether an item must not be sent any more, for example because
	// another sender will send it. It is called on the loop: for each item that a Producer or
	// Waiting returns and, after Sender.Withdraw, for all unsettled items that the Sender holds.
	// The parameter sent reports whether an attempt of the item was ever started. If so, a worker
	// may still be using the value, and the receiver may have stored it even if the attempt failed.
	//
	// The result for an item may change only from a lesser Withdrawal to a greater one. A withdrawn
	// item settles when none of its attempts runs any more. If one of them has delivered it, it
	// settles as delivered, and otherwise with Settlement.Withdrawn.
	Withdrawn func(it Item[T], sent bool) Withdrawal
	// Released, if not nil, is called on the loop once for each item that a Producer, Bisect, a
	// Split or Waiting has returned. At that time, the item has been settled, replaced or moved
	// into Waiting and none of its attempts runs, or Run ends. The item's memory may then be
	// reused.
	Released func(it Item[T])
	// Trace, if not nil, is called on the loop with each event and the state machine's commands,
	// before the Sender carries them out. Both are valid only during the call.
	Trace func(e *control.Event, do []control.Command)
}
