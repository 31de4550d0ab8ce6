package cluster

import (
	"context"
	"errors"
)

// Register is one key of the bucket. A write changes the value only if the key still has the
// expected revision (compare-and-set). Each call has its own timeout. A Register is safe for
// concurrent use.
type Register interface {
	// Read returns the value as stored by the leader of the bucket.
	Read(ctx context.Context) (Stored, error)
	// Write stores data and returns the new revision. If found is true, it does so only if the key
	// has the given revision. If found is false, it does so only if the key does not exist.
	// Otherwise it returns ErrConflict. After any other error, the value may have been stored, or
	// may be stored later.
	Write(ctx context.Context, found bool, revision uint64, data []byte) (uint64, error)
}

// Stored is the value of a Register. If the key does not exist, Revision is the last revision of
// the whole bucket. An epoch is computed from Revision (see Entry), so it is higher than all
// earlier ones even if the key was deleted.
type Stored struct {
	Found    bool
	Revision uint64
	Data     []byte
}

// ErrConflict means that the key does not have the expected revision.
var ErrConflict = errors.New("another process has written the key")
