package cluster

import (
	"context"
	"errors"
)

// Register is a key of the bucket, whose value changes by compare-and-set. It is safe for
// concurrent use. Each call sends one request with its own timeout.
type Register interface {
	// Read returns the value from the leader of the bucket.
	Read(ctx context.Context) (Stored, error)
	// Write stores a value if the key still has the given revision, or if found is false and the
	// key is missing. It returns the new revision. Otherwise it returns ErrConflict. After any
	// other error the value may have been stored, or may be stored later.
	Write(ctx context.Context, found bool, revision uint64, data []byte) (uint64, error)
}

// Stored is the value of a Register. For a missing key, the revision is the last revision of the
// whole bucket, so that epochs grow even if the key was deleted.
type Stored struct {
	Found    bool
	Revision uint64
	Data     []byte
}

// ErrConflict means that a Register has another revision.
var ErrConflict = errors.New("another process has written the key")
