package buffer

import (
	"context"
	"errors"
)

// Store keeps numbered envelopes. Its methods are safe for concurrent use; one goroutine appends.
type Store interface {
	// Append stores an envelope under the number that follows the last one, durably.
	Append(ctx context.Context, number uint64, text []byte) error
	// Get returns the envelope with a number, or ErrMissing.
	Get(ctx context.Context, number uint64) ([]byte, error)
	// Purge deletes the envelopes below a number. It never deletes the last one.
	Purge(ctx context.Context, below uint64) error
	// State returns the numbers of the first and the last envelope, 0 and 0 if there was never one,
	// and the bytes on disk.
	State(ctx context.Context) (first, last uint64, bytes int64, err error)
	// Close frees the store.
	Close() error
}

// ErrMissing is returned for an envelope that the store does not have.
var ErrMissing = errors.New("the store does not have it")
