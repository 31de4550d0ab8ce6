package buffer

import (
	"context"
	"errors"
)

// Store keeps numbered envelopes, the entries of a [Buffer], on disk. Its methods are safe for
// concurrent use, except Append: only one goroutine may call it.
type Store interface {
	// Append stores an envelope. number must be the last envelope's number plus 1. Options.Sync, or
	// the settings of external servers, determine whether a power loss can lose the envelope.
	Append(ctx context.Context, number uint64, text []byte) error
	// Get returns the envelope with the given number, or ErrMissing.
	Get(ctx context.Context, number uint64) ([]byte, error)
	// Purge deletes the envelopes with a number below the given one. It never deletes the last
	// envelope.
	Purge(ctx context.Context, below uint64) error
	// State returns the numbers of the first and last envelopes, and the bytes on disk. Both
	// numbers are 0 if no envelope was ever stored.
	State(ctx context.Context) (first, last uint64, bytes int64, err error)
	// Close closes the store.
	Close() error
}

// watcher is a [Store] that may become unusable until it is opened again.
type watcher interface {
	// watch returns an error once the store is unusable, and nil when ctx is done.
	watch(ctx context.Context) error
}

// ErrMissing is the error of [Store.Get] for an envelope that the store does not have.
var ErrMissing = errors.New("the store does not have it")
