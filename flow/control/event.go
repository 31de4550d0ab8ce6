//penstock:pure

// Package control is the whole sender as one pure machine: event in, commands out.
//
// A [Machine] makes all decisions of a sender: how much may be in flight to each worker (package
// window), which worker gets the next item (package dispatch), when an attempt has timed out, when
// an item is retried, which breaker is open, and which items must wait for the replay bound, their
// keys or ordered lanes. flow.Sender, the simulator, the fuzzers, the model checker and --replay
// only feed it events and carry out its commands, so tests run the shipped code.
//
// It never reads a clock, a private random source or the order of a map, starts nothing, locks
// nothing and does no I/O. A machine is not safe for concurrent use: its owner calls it from one
// goroutine. The same seed and the same events give the same commands, bit for bit on one GOARCH.
// So the package runs under testing/synctest.
package control

import "time"

// Kind of an [Event].
type Kind uint8

// The events.
const (
	// Offer: a new item, the next in sequence. Seq, Cost, Bytes, Keys; History if it was deferred.
	Offer Kind = iota + 1
	// Answer: the Deliver of attempt ID has returned. It has Outcome, After and Report. With
	// Outcome Split, Cost is that of the delivered or rejected parts, and Pieces Piece events
	// follow at once. Pieces is 0, and none follow, if the item was settled before or is being cut
	// or buried. An ID that is not running, or was answered before, is ignored.
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
	// Cut: the answer to Bisect{Seq}: Pieces Piece events follow at once. With fewer than two it
	// cannot be cut, none follow, and a Bury command answers.
	Cut
	// Piece: item Seq, greater than any before, replaces a part of Parent, after the pieces before
	// it. It has Cost, Bytes and Keys. Outcome is Retryable (to be sent), Delivered or Rejected (to
	// be buried). The pieces tile Parent, which is removed, without a Settle of its own, with the
	// last of them.
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
	Parent  uint64 // Piece: the item that it replaces a part of
	Pieces  uint32 // Answer (Split), Cut: how many Piece events follow
	Cost    float64
	Bytes   int64
	Keys    []uint32      // interned by the owner
	After   time.Duration // Throttled: from Now; 0: not said
	// Answer (Retryable, TimedOut), Piece (Retryable): a worker died of it, see Poison
	Died    bool
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
	// Standby above 0 means that the lane takes items only while each lane with a lower number is
	// down: its breaker is open. It does not work with a dispatch policy that assigns items to
	// lanes, as hash does.
	Standby int
}

// Report is a worker's description of its own state in an answer. The zero value is that of a
// third-party worker, which sends none.
type Report struct {
	// of the worker's process: another one means that it restarted and has lost its volatile state
	Epoch uint32
	// maximum absolute, cumulative cost that the worker will accept; 0 with Epoch 0: not advertised
	Credit uint64
	// cumulative cost that the worker has taken from this sender; 0: not reported
	Taken              uint64
	Batches            bool // Credit, Taken and QueueLen count items, whatever they cost
	QueueLen, Slots    int  // cost waiting in the worker; its parallel servers
	QueueWait, Service time.Duration
	// Cost is the worker's own price of this item, in its unit, if that is not the sender's; 0: not
	// reported
	Cost uint64
	// Draining means that the worker takes no further items, because its process is about to end.
	Draining bool
	// Place is the position of an Ordered lane's receiver after this item (file and length). It is
	// saved in the same checkpoint entry as the item's settle.
	Place string
}

// CommandKind of a [Command].
type CommandKind uint8

// The commands.
const (
	Start  CommandKind = iota + 1 // item Seq to lane Lane as attempt ID: Number, Run, Place, Expect
	Cancel                        // end attempt ID's context; its Answer is still owed
	// item Seq is settled: Number attempts, by Lane through attempt ID; Lane -1: by none
	Settle
	// item Seq was refused and no attempt of it runs: cut it and answer with Cut
	Bisect
	// item Seq was refused and cannot be cut: make it durable and answer with Buried
	Bury
	Wait  // item Seq waits until Expect, with this History
	Defer // likewise, and the owner may keep it: answer with Held
)

// Why a command is given.
type Why uint8

// The reasons.
const (
	Turn      Why = iota // Start: it is the item's turn. Bisect, Bury: a worker rejected it
	Probe                // Start: to see whether a worker that was left alone is back
	Twin                 // Start: a hedge, the second attempt of the item that holds the watermark
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
