package stream

import (
	"context"
	"time"
)

// ParkingSink is an optional interface of a [Sink] that stores records in the state directory and
// delivers them later. For the engine, a batch is delivered as soon as its records are durable in
// that store. The engine shows the records as parked until the sink has delivered them.
//
// The store is local. Therefore the engine refuses a ParkingSink for an [AssignedSource], whose
// partitions may move to another machine.
type ParkingSink interface {
	Sink
	// Parked returns the counts of the store. It is called after Open, from any goroutine, and must
	// not wait for a receiver. After Close, it returns the last counts.
	Parked() ParkedCounts
	// Deliveries returns the store for queries. It is called after Open.
	Deliveries() DeliveryStore
}

// ParkedCounts are the counts of a ParkingSink. They count source records. Waiting is the current
// number of parked records. Exhausted is the number of those among them that need an operator. The
// other counts only grow.
type ParkedCounts struct {
	Waiting, Exhausted, Delivered, Dead, Cancelled int64
}

// DeliveryStore answers queries about parked deliveries. It is safe for concurrent use. Its methods
// return [ErrNoDelivery] for a delivery that it does not have.
type DeliveryStore interface {
	// Delivery returns the newest delivery of a key, with its history.
	Delivery(ctx context.Context, key string) (Delivery, error)
	// DeliveryOf is like Delivery, but finds only deliveries of the given owner.
	DeliveryOf(ctx context.Context, key string, owner DeliveryOwner) (Delivery, error)
	// List returns a page of deliveries by ascending ID, without their histories.
	List(ctx context.Context, f DeliveryFilter) ([]Delivery, error)
	// Retry schedules an extra attempt, or an extra poll, of a waiting or exhausted delivery. It is
	// due at once.
	Retry(ctx context.Context, key string) (Delivery, error)
	// Cancel ends a waiting or exhausted delivery.
	Cancel(ctx context.Context, key string) (Delivery, error)
}

// ParkingOptions is an optional interface of the options of a [ParkingSink]. It lets commands read
// the store without the sink, whether or not a process is running.
type ParkingOptions interface {
	// OpenDeliveries opens the store in the directory that [SinkOptions].StateDir returns. The
	// error wraps fs.ErrNotExist if nothing was parked yet.
	OpenDeliveries(ctx context.Context, stateDir string) (OpenDeliveryStore, error)
}

// OpenDeliveryStore is a [DeliveryStore] that its user closes.
type OpenDeliveryStore interface {
	DeliveryStore
	// Counts returns the counts of the store, as [ParkingSink].Parked does while the sink is open.
	Counts(ctx context.Context) (ParkedCounts, error)
	Close() error
}

// Errors of a [DeliveryStore].
var (
	ErrNoDelivery    = constError("there is no delivery with this key")
	ErrDeliveryEnded = constError("the delivery has ended")
	ErrBadFilter     = constError("the filter is invalid")
)

type constError string

// Error returns the text.
func (e constError) Error() string { return string(e) }

// DeliveryOwner selects the deliveries that one receiver may query: deliveries that are signed with
// the keys of its name, and deliveries to its hosts. The zero value selects none.
type DeliveryOwner struct {
	Name  string
	Hosts []string // names without ports, in lower case
}

// DeliveryFilter selects deliveries. The zero value selects the first page of all.
type DeliveryFilter struct {
	Host  string
	State string // waiting, exhausted, done, dead or cancelled
	After int64  // ID of the last delivery of the page before
	Limit int
}

// Delivery is a parked delivery in the form of the API.
type Delivery struct {
	ID        int64             `json:"id"`
	Key       string            `json:"key"`
	Record    string            `json:"record"` // id of the source's record
	Host      string            `json:"host"`   // of the next request
	URL       string            `json:"url"`    // without its query
	State     string            `json:"state"`
	Planned   int               `json:"attempts_planned"`       // attempts in the schedule
	Attempt   int               `json:"next_attempt,omitempty"` // from 1; 0 if none is left
	Operation *Operation        `json:"operation,omitempty"`    // the polled operation, if any
	Parked    time.Time         `json:"parked_at"`
	Next      time.Time         `json:"next_at,omitzero"` // of the next attempt or poll
	Ended     time.Time         `json:"ended_at,omitzero"`
	Last      *DeliveryAttempt  `json:"last,omitempty"` // the last attempt
	Attempts  []DeliveryAttempt `json:"history,omitempty"`
}

// Operation describes the work that a receiver does for a delivery after it has accepted the
// delivery. The sink polls for the result.
type Operation struct {
	Location string    `json:"location"` // without its query
	Accepted time.Time `json:"accepted_at"`
	Polls    int       `json:"polls"`
	Found    string    `json:"found,omitempty"` // result of the last poll
}

// DeliveryAttempt is one entry in the history of a delivery: an attempt, a planned time that passed
// without an attempt, or an action of an operator.
type DeliveryAttempt struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Millis int64     `json:"milliseconds,omitempty"`
	Status int       `json:"status,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Body   string    `json:"body,omitempty"`
}

// DeadLetter is a record that was refused, or that a [ParkingSink] has given up.
type DeadLetter struct {
	ID        string            // of the record, see [Batch.AppendRecordID]
	Partition string            // id of the partition
	File      string            // name of the partition, such as the name of a file
	Position  Position          // end of the record in its partition
	Record    []byte            // text of the record
	Reason    string            // the same for all records with this kind of problem
	Detail    string            // specific to this record; "" if there is nothing
	Attempts  int               // of its batch; 0 if refused before the first
	Worker    string            // that refused it; "" if a processor or the reader did
	History   []DeliveryAttempt // if the sink had parked the record
}
