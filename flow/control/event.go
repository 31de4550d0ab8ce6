//penstock:pure

// Package control is the whole sender as one pure machine: event in, commands out.
//
// A [Machine] decides everything that a sender decides: how much may be in flight to each worker
// (package window), who gets the next item (package dispatch), when an attempt has timed out, what
// is sent again and when, which breaker is open, what the replay bound allows, which keys and
// ordered lanes hold what back. flow.Sender, the simulator, the fuzzers, the model checker and
// --replay only feed it events and carry out its commands, so what is tested is what ships.
//
// It never reads a clock, a random source of its own or a map's order, starts nothing, locks
// nothing and does no I/O. A machine is not safe for concurrent use: its owner calls it from one
// goroutine. The same seed and the same events give the same commands, bit for bit on one GOARCH.
package control

import "time"

// Kind of an [Event].
type Kind uint8

// The events.
const (
	// Offer: a new item, the next in sequence. Seq, Cost, Bytes, Keys; History if it was deferred.
	Offer Kind = iota + 1
	// Answer: the Deliver of attempt ID has returned. Outcome, After, Report. With Outcome Split, Cost
	// is that of the parts that were delivered or rejected, and Pieces Piece events follow at once;
	// Pieces is 0, and none follow, where the item was settled before or is being cut or buried. An ID
	// that does not run, or was answered before, is ignored.
	Answer
	// Tick: nothing happened, time passed (see Machine.Wake). Attempts become overdue on a Tick only,
	// so an owner that has answers at hand steps them before it.
	Tick
	// LaneUp: lane Lane exists with Limits; again for a lane that is up: its limits have changed.
	LaneUp
	// LaneDown: lane Lane takes no further attempt; those in flight still answer.
	LaneDown
	// Saved: Bytes that had settled are now in the checkpoint.
	Saved
	// Cut: the answer to Bisect{Seq}: Pieces Piece events follow at once; fewer than two: it cannot be
	// cut, none follow, and a Bury command answers.
	Cut
	// Piece: item Seq, greater than any before, stands in the place of Parent, behind the pieces
	// before it. Cost, Bytes, Keys; Outcome is Retryable (to be sent), Delivered or Rejected (to be
	// buried). The pieces tile Parent, which is gone, without a Settle of its own, when the last has
	// come.
	Piece
	// Buried: the answer to Bury{Seq}: it is durable.
	Buried
	// Withdraw: no further attempt of item Seq starts. It settles as delivered if a running attempt
	// delivers it, else as withdrawn when none runs any more. One that is being buried settles as
	// buried. An item that has settled is ignored.
	Withdraw
	// Abort is Withdraw, and the running attempts of the item are canceled.
	Abort
	// Held: Pieces, Cost and Bytes are the number and the sums of the items that the owner keeps.
	// With Seq it answers Defer: the item is among them, or, if Outcome is Rejected, is not.
	Held
)

// Event is one thing that happened; the trace format is a list of these.
type Event struct {
	Now     time.Duration // monotonic since the sender's start; never less than in the event before
	Kind    Kind
	Outcome Outcome
	Lane    int32
	Seq, ID uint64 // item; attempt
	Parent  uint64 // Piece: the item whose place this one takes
	Pieces  uint32 // Answer (Split), Cut: how many Piece events follow
	Cost    float64
	Bytes   int64
	Keys    []uint32      // interned by the owner
	After   time.Duration // Throttled: from Now; 0: not said
	Died    bool          // Answer (Retryable, TimedOut), Piece (Retryable): a worker died of it, see Poison
	Report  Report
	Limits  Limits
	History History // Offer
}

// Outcome of an attempt.
type Outcome uint8

// The outcomes.
const (
	Delivered     Outcome = iota + 1
	Throttled             // alive but full
	Retryable             // not delivered, may be next time
	TimedOut              // the attempt was abandoned
	Rejected              // this value will never be taken
	Misconfigured         // the lane's fault
	Split                 // settled in part
)

// Limits bound a lane whatever its window says.
type Limits struct {
	InFlight int  // attempts at once, hard; 0: the window alone decides
	Ordered  bool // Delivers take effect, and settle, in the order of Attempt.Place within a Run
}

// Report is what a worker says of itself with an answer; the zero value is a third party that says
// nothing.
type Report struct {
	Epoch              uint32 // of the worker's process: another one means it restarted and has forgotten what it held
	Credit             uint64 // absolute, cumulative cost that the worker will have taken at most; 0 with Epoch 0: it advertises none
	Taken              uint64 // cumulative cost that the worker has taken from this sender; 0: not said
	Batches            bool   // Credit, Taken and QueueLen count items, whatever they cost
	QueueLen, Slots    int    // cost waiting in the worker; its parallel servers
	QueueWait, Service time.Duration
	// Place is where an Ordered lane's receiver stands after this item (file and length); it is saved
	// in the same checkpoint entry as the item's settle.
	Place string
}

// CommandKind of a [Command].
type CommandKind uint8

// The commands.
const (
	Start  CommandKind = iota + 1 // item Seq to lane Lane as attempt ID: Number, Run, Place, Expect
	Cancel                        // end attempt ID's context; its Answer is still owed
	Settle                        // item Seq is settled: Number attempts, by Lane through attempt ID; Lane -1: by none
	Bisect                        // item Seq was refused and no attempt of it runs: cut it and answer with Cut
	Bury                          // item Seq was refused and cannot be cut: make it durable and answer with Buried
	Wait                          // item Seq waits until Expect, with this History
	Defer                         // likewise, and the owner may keep it: answer with Held
)

// Why a command is given.
type Why uint8

// The reasons.
const (
	Turn      Why = iota // Start: it is the item's turn. Bisect, Bury: a worker rejected it
	Probe                // Start: to see whether a worker that was left alone is back
	Twin                 // Start: the attempt that holds the watermark takes long, and this is a second one beside it
	Deadly               // Bisect, Bury: Count workers have died of it
	Failing              // Bisect, Bury: workers that deliver others have failed it Count times
	Apart                // Start: a suspect, beside the window
	Exhausted            // Bisect, Bury: it failed Count times, and Config.End gives it up
	Withdrawn            // Settle: undelivered. Cancel: its item is aborted
)

// Command is one thing to do, in the order given.
type Command struct {
	Kind    CommandKind
	Why     Why
	Seq, ID uint64
	Lane    int32
	Number  uint32
	Count   uint32 // Bisect, Bury: see Why
	Run     uint32 // Ordered lanes
	Place   uint32 // Ordered lanes: dense from 0 within Run
	// Expect counts from the sender's start. Start: when the attempt is overdue; 0: never. Wait and
	// Defer: when the next attempt is due.
	Expect  time.Duration
	History History // Wait, Defer
}
