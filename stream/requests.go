package stream

import (
	"strings"
	"time"
)

// RequestPrefix begins the id of each partition that is a request. See [RequestSource].
const RequestPrefix = "request-"

// IsRequest reports whether a partition is the data of one request.
func IsRequest(partitionID string) bool { return strings.HasPrefix(partitionID, RequestPrefix) }

// RequestSource is a source whose clients may send a request to several processes, for example
// again after a timeout. A request with an idempotency key is a partition of its own. It has the
// same id, positions and data in every process, so that processes that share a ledger deliver it
// once. All other partitions exist in one process only.
type RequestSource interface {
	Source
	// KeepsRequests returns two values. own is the id of the partition in which this process stores
	// everything that has no partition of its own. keep is the time for which the progress of a
	// request is kept. A keep of zero means that no partition is a request.
	KeepsRequests() (own string, keep time.Duration)
}

// ObjectOptions is an optional interface of the options of a [Source]. A replay of dead letters,
// which runs without the source, needs it: it restores the fields of each record from the text in
// its dead letter.
type ObjectOptions interface {
	// ReadsObjects reports whether the text of each record is a JSON object, with the fields of the
	// record as its members.
	ReadsObjects() bool
}

// RequestOptions is implemented by the options of a [RequestSource]. A replay of dead letters,
// which runs without the source, needs it to open the ledger of the requests.
type RequestOptions interface {
	// KeepRequests returns the time for which the progress of a request is kept, as KeepsRequests
	// does.
	KeepRequests() time.Duration
}
