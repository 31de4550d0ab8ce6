package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Result is the outcome of a notification that was not refused. It has no meaning together with an
// error.
type Result uint8

// The results.
const (
	Applied  Result = iota // the change was committed by this call
	Repeated               // the change was committed by an earlier one
)

// String returns "applied" or "repeated".
func (r Result) String() string {
	if r == Repeated {
		return "repeated"
	}
	return "applied"
}

// Key identifies a change. The Store records the Key of each committed change, so that the change
// is not made again.
type Key struct {
	ID     string   // at most 256 bytes of valid UTF-8, not empty
	Digest [32]byte // SHA-256 of Options.Same
	At     time.Time
}

// ErrKeyReused is returned by a Store if a key was recorded before with another digest. This means
// that two different notifications have the same key.
var ErrKeyReused = errors.New("inbox: the key was used before, with another body")

// Store runs changes in transactions of type T, such as *sql.Tx, and stores their keys. It is safe
// for concurrent use.
type Store[T any] interface {
	// Once begins a transaction, records the key in it, calls change with it, commits, and returns
	// Applied. If the key was recorded before, it returns Repeated without calling change, or
	// ErrKeyReused if the digests differ. If several calls with one key run at the same time, at
	// most one of them commits a change. If change returns an error, Once rolls back the whole
	// transaction, including the key, and returns the error.
	Once(ctx context.Context, key Key, change func(ctx context.Context, tx T) error) (Result, error)
}

// Options are the settings of an Inbox.
type Options[T any] struct {
	// Verifier checks signatures.
	Verifier Verifier

	// Store holds the keys, in the database of the business data.
	Store Store[T]

	// Change applies a notification in the transaction tx. It must make all changes through tx,
	// because the transaction may be rolled back and the notification repeated. If the error wraps
	// ErrRejected, the response is 422, and otherwise 500.
	Change func(ctx context.Context, tx T, m Message) error

	// Key returns the business key of a notification, such as an order's number, and an error if it
	// has none. Nil means Message.ID.
	Key func(m Message) (string, error)

	// Same returns the part of a notification that is equal in all its repetitions. Set it if the
	// sender changes the body between repetitions, for example a time or a counter in it. Two
	// notifications with the same key and different parts are refused. Nil means that the whole
	// body must be equal.
	Same func(m Message) []byte

	// Success is the body of the response to an accepted notification. "" means "success".
	Success string

	// MaxBody bounds the body of a request in bytes. Zero means 1 MiB.
	MaxBody int64

	// OnError receives the errors of requests, for a log. Nil means none.
	OnError func(r *http.Request, err error)
}

// ErrRejected marks a notification that will never be accepted, even if it is repeated.
var ErrRejected = errors.New("inbox: the notification is rejected")

const defaultMaxBody = 1 << 20

// Inbox accepts notifications and applies each of them once. It is an http.Handler, and safe for
// concurrent use.
type Inbox[T any] struct{ o Options[T] }

// New returns an inbox.
func New[T any](o Options[T]) (*Inbox[T], error) {
	switch {
	case o.Verifier == nil:
		return nil, errors.New("inbox: Options.Verifier is nil")
	case o.Store == nil:
		return nil, errors.New("inbox: Options.Store is nil")
	case o.Change == nil:
		return nil, errors.New("inbox: Options.Change is nil")
	case o.MaxBody < 0:
		return nil, fmt.Errorf("inbox: Options.MaxBody %d is negative", o.MaxBody)
	}
	if v, ok := o.Verifier.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.Success == "" {
		o.Success = "success"
	}
	if o.Key == nil {
		o.Key = func(m Message) (string, error) { return m.ID, nil }
	}
	if o.Same == nil {
		o.Same = func(m Message) []byte { return m.Body }
	}
	return &Inbox[T]{o}, nil
}

// Receive verifies a notification and applies it, unless it was applied before. The sender should
// repeat the notification after an error, unless the error is a *SignatureError or wraps
// ErrRejected or ErrKeyReused.
func (i *Inbox[T]) Receive(ctx context.Context, header http.Header, body []byte) (Result, error) {
	now := time.Now()
	m, err := i.o.Verifier.Verify(header, body, now)
	if err != nil {
		return 0, err
	}
	id, err := i.o.Key(m)
	switch {
	case err != nil:
	case id == "" || len(id) > maxID || strings.ContainsRune(id, 0):
		err = fmt.Errorf("its key has %d bytes, want 1 to %d, none of them zero", len(id), maxID)
	case !utf8.ValidString(id): // databases refuse such a text
		err = fmt.Errorf("its key %q is not valid UTF-8", id)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	key := Key{ID: id, Digest: sha256.Sum256(i.o.Same(m)), At: now}
	return i.o.Store.Once(ctx, key, func(ctx context.Context, tx T) error {
		return i.o.Change(ctx, tx, m)
	})
}
