package stream

import (
	"context"
	"errors"
	"time"
)

// ErrNoBuffer is returned by OpenBuffer of options that have no buffer.
var ErrNoBuffer = errors.New("the source has no buffer")

// BufferingOptions is an optional interface of the options of a source with a durable buffer. It
// lets commands such as `penstock buffer list` open the stored data without the source.
type BufferingOptions interface {
	// OpenBuffer opens the buffer of a source with the given state directory. It returns
	// [ErrNoBuffer] if the options configure no buffer, and an error that wraps fs.ErrNotExist if
	// the buffer has not been created yet.
	OpenBuffer(ctx context.Context, stateDir string) (OpenBuffer, error)
}

// OpenBuffer is a durable buffer that was opened without its source. It is used by one goroutine.
type OpenBuffer interface {
	// Bounds returns the numbers of the first and the last envelope (entry) in the buffer. Both
	// are 0 if the buffer is empty.
	Bounds(ctx context.Context) (first, last uint64, err error)
	// Envelope returns the envelope with the given number. The error is nil even if this envelope
	// is corrupt or missing. It is not nil if the store fails.
	Envelope(ctx context.Context, number uint64) (Envelope, error)
	// Skip makes all routes of the source skip the envelopes from first to last. It takes effect
	// when the source starts the next time.
	Skip(ctx context.Context, first, last uint64) error
	Close() error
}

// Envelope is an entry of a buffer: records that were stored together.
type Envelope struct {
	Number  uint64
	Stored  time.Time // zero if it is corrupt
	Records [][]byte  // nil if it is corrupt, or has copies of keys only
	Bytes   int       // on disk
	Keys    int       // number of request keys
	Corrupt string    // the damage; empty if there is none
	Skipped bool      // by an operator
}
