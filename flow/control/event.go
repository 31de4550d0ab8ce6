//penstock:pure

// Package control implements all decisions of a sender as one pure state machine. Machine.Step
// takes an event and returns commands.
//
// A [Machine] decides how much may be in flight to each worker (package window) and which worker
// gets the next item (package dispatch). It decides when an attempt has timed out, when an item is
// retried and which breaker is open. It holds items back for the replay bound, their keys and
// ordered lanes. flow.Sender, the simulator (also with --replay), the fuzzers and the model checker
// only feed it events and carry out its commands, so tests run the shipped code.
//
// A Machine never depends on a clock, an unseeded random source or the order of a map. It starts no
// goroutine, takes no lock and does no I/O. It is not safe for concurrent use: its owner calls it
// from one goroutine at a time. The same seed and the same events give the same commands, bit for
// bit on one GOARCH.
package control

import "time"

// Kind is the kind of an [Event].
type Kind uint8

// The events.
const (
	// Offer is a new item, the next in sequence. It has Seq, Cost, Bytes and Keys. It also has
	// History if the owner kept the item during a long wait (see Config.Defer).
	Offer Kind = iota + 1
	// Answer means that the Deliver of attempt ID has returned. It has Outcome, After, Died and Report.
	// With Outcome Split, Cost is the cost of the delivered or rejected parts, and Pieces is the
	// number of Piece events that must follow at once. Pieces is 0, and none follow, if the item
	// was settled before or is being cut or dead-lettered. The machine ignores an ID that is not
	// running or was answered before.
	Answer
	// Tick means that only time has passed (see Machine.Wake). Attempts become overdue on a Tick
	// only, so an owner must step the Answers that it already has before the Tick.
	Tick
	// LaneUp means that lane Lane is up, with Limits. For a lane that is up already, it changes the
	// limits.
	LaneUp
	// LaneDown means that lane Lane takes no further attempts. Running ones must still be answered.
	LaneDown
	// Saved means that Bytes of settled items are now in the checkpoint.
	Saved
	// Cut answers Bisect{Seq}. Pieces is the number of Piece events that must follow at once. If
	// Pieces is below two, the item cannot be cut and none follow; the machine usually answers with
	// a DeadLetter.
	Cut
	// Piece is a new item that replaces a part of Parent. Its Seq is greater than all before, and
	// its place is after the earlier pieces. It has Cost, Bytes and Keys. Outcome is Retryable (to
	// be sent), Delivered or Rejected (to be dead-lettered). Together the pieces are exactly
	// Parent. The last piece removes Parent, which gets no Settle of its own.
	Piece
	// DeadLettered answers DeadLetter{Seq}: the item is stored durably.
	DeadLettered
	// Withdraw means that no further attempt of item Seq starts. The item settles as delivered if a
	// running attempt delivers it, else as withdrawn when no attempt runs any more. An item that is
	// being dead-lettered settles as dead-lettered. The machine ignores an item that has settled.
	Withdraw
	// Abort is like Withdraw, but also cancels the running attempts of the item.
	Abort
	// Held reports the items that the owner keeps: their number (Pieces), Cost and Bytes. With Seq
	// it answers a Defer: the owner keeps the item, or does not if Outcome is Rejected.
	Held
)

// Event is one input of a Machine. A trace is a list of Events.
type Event struct {
	Now     time.Duration // monotonic since the sender's start; never decreases
	Kind    Kind
	Outcome Outcome
	Lane    int32
	Seq, ID uint64 // item; attempt
	Parent  uint64 // Piece: the item that is replaced
	Pieces  uint32 // Answer (Split), Cut: how many Piece events follow
	Cost    float64
	Bytes   int64
	Keys    []uint32      // interned by the owner
	After   time.Duration // Throttled: wait from Now; 0: the worker named none
	// Answer (Retryable, TimedOut), Piece (Retryable): a worker died of the item, see Poison
	Died    bool
	Report  Report
	Limits  Limits
	History History // Offer
}

// Outcome is the outcome of an attempt.
type Outcome uint8

// The outcomes.
const (
	Delivered     Outcome = iota + 1
	Throttled             // alive but full
	Retryable             // not delivered; a retry may succeed
	TimedOut              // the attempt was abandoned
	Rejected              // no worker will ever accept the value
	Misconfigured         // the lane is at fault
	Split                 // settled in part
)

// Limits bound a lane in addition to its window.
type Limits struct {
	InFlight int  // hard limit of attempts in flight; 0: only the window limits them
	Ordered  bool // attempts take effect and settle in the order of Attempt.Index within a Run
	// Standby above 0 means that the lane takes items only while the breakers of all lanes with a
	// lower Standby are open or pause them. It does not work with a dispatch policy that assigns
	// items to lanes, as hash does.
	Standby int
}

// Report is a worker's description of its own state in an answer. The zero value means that the
// worker sends none, as third-party workers do.
type Report struct {
	// identifies the worker's process: a new Epoch means that it restarted and lost its volatile
	// state
	Epoch uint32
	// limit of the cumulative cost that the worker takes from this sender. If Epoch is 0, no limit
	// is advertised
	Credit uint64
	// cumulative cost that the worker has taken from this sender; 0: not reported
	Taken              uint64
	Batches            bool          // Credit, Taken and QueueLen count items instead of cost
	QueueLen, Slots    int           // cost waiting in the worker; its parallel servers
	QueueWait, Service time.Duration // both 0: not reported
	// Cost is the cost of this item in the worker's unit, if the sender's unit is another one; 0
	// means not reported
	Cost uint64
	// Draining means that the worker takes no further items, because its process is about to end.
	Draining bool
	// ResumeToken is the position of an Ordered lane's receiver after this item (file and length).
	// It is saved in the same checkpoint entry as the item's settle.
	ResumeToken string
}

// CommandKind is the kind of a [Command].
type CommandKind uint8

// The commands.
const (
	Start  CommandKind = iota + 1 // item Seq to lane Lane as attempt ID: Number, Run, Index, Expect
	Cancel                        // end the context of attempt ID, which must still be answered
	// item Seq is settled after Number attempts, delivered by attempt ID at Lane; Lane -1: not
	// delivered
	Settle
	// item Seq was refused and none of its attempts runs: cut it and answer with Cut
	Bisect
	// item Seq was refused and cannot be cut: make it durable and answer with DeadLettered
	DeadLetter
	Wait  // item Seq waits until Expect, with this History
	Defer // likewise, and the owner may take the item over: answer with Held
)

// Reason is the reason for a command.
type Reason uint8

// The reasons.
const (
	// Start: the item is next in order. Bisect, DeadLetter: a worker rejected the item.
	InOrder        Reason = iota
	Probe                 // Start: to find out whether a paused worker delivers again
	HedgeAttempt          // Start: a hedge of the item that holds the watermark
	Deadly                // Bisect, DeadLetter: Count workers have died of the item
	Failing               // Bisect, DeadLetter: Count failures at workers that deliver others
	SuspectAttempt        // Start: the item is a suspect and takes no place in the window
	Exhausted             // Bisect, DeadLetter: given up by Config.End after Count failures
	Withdrawn             // Settle: not delivered. Cancel: the item is aborted
)

// Command is one output of a Machine. The owner carries out commands in the order given.
type Command struct {
	Kind    CommandKind
	Reason  Reason
	Seq, ID uint64
	Lane    int32
	Number  uint32
	Count   uint32 // Bisect, DeadLetter: see Reason
	Run     uint32 // Ordered lanes
	Index   uint32 // Ordered lanes: counts from 0 within Run, without gaps
	// Expect is a time since the sender's start. For Start, it is the time from which the attempt
	// is overdue, or 0 for never. For Wait and Defer, it is the time at which the next attempt is
	// due.
	Expect  time.Duration
	History History // Wait, Defer
}
