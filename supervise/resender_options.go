package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Reasons for which a message gets no reply. ErrPoison, ErrAttempts, ErrAge and ErrFull are reasons
// of a [DeadError].
var (
	ErrHeld     = errors.New("supervise: a message with that key is held already")
	ErrFull     = errors.New("supervise: the resender is full")
	ErrPoison   = errors.New("supervise: the child crashed on the message")
	ErrAttempts = errors.New("supervise: the message has no attempts left")
	ErrAge      = errors.New("supervise: the message is too old")
)

// ErrSpilled is the error of Call for a message that was passed to Options.Spill. Call cannot wait
// for a reply to it.
var ErrSpilled = errors.New("supervise: the message was spilled")

// Overflow selects what Send does with a message that exceeds Limits.Items or Limits.Bytes.
type Overflow uint8

// The ways to handle an overflow.
const (
	Block  Overflow = iota // Send waits until there is room or its context ends
	Reject                 // Send returns ErrFull
	// DropOldest makes Send dead-letter the oldest message that is ready for the child. If no
	// message is ready, it dead-letters the message that is retried next. If no message waits for a
	// retry either, Send returns ErrFull.
	DropOldest
	Spill // the new message is passed to Options.Spill
)

// String returns the name, such as "drop oldest".
func (o Overflow) String() string { return nameOf(o, "block", "reject", "drop oldest", "spill") }

// MarshalText implements encoding.TextMarshaler.
func (o Overflow) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Limits bound the messages that a Resender holds and the attempts of each. The zero value has the
// defaults.
type Limits struct {
	Items int // messages held; 0 means 100,000
	// Bytes bounds the sum of Options.Size of the messages held. One message is always allowed,
	// even if it is larger. 0 means 64 MiB.
	Bytes    int64
	Overflow Overflow
	Window   int // messages that the child may have at a time; 0 means 1024

	// MaxDeaths is the number of crashes after which a message is dead-lettered. A crash counts
	// against a message only if it was the only message that the child had. Zero means no limit.
	// Use zero if the messages are not to blame for crashes, for example if a child crashes
	// whenever its server is down.
	MaxDeaths int
	// MaxAttempts limits the attempts of a message, including the first. When the last one has
	// failed, the message is dead-lettered. An attempt fails if the child crashes, calls Nack, or
	// returns nil by itself without having settled the message. Zero means no limit.
	MaxAttempts int
	// MaxAge bounds the time for which a message is held. The age of a message that the child has
	// taken is checked when the message comes back. Zero means no limit.
	MaxAge time.Duration

	// Stall bounds the time for which a child that has messages makes no progress: it does not
	// take, acknowledge or nack one. After this time, the child's context ends, which counts as a
	// crash. Zero means no limit.
	Stall time.Duration
	// Shutdown bounds the time that the child takes to return after its context has ended. A child
	// that takes longer is stuck, and if it was to be restarted, the Resender gives up. Zero means
	// 5 s.
	Shutdown time.Duration
}

// Work is one incarnation of a Resender's child. It takes messages from the Inbox and calls Ack or
// Nack for them, in any order and from any goroutine, until ctx ends. Before that, an error (except
// ErrStop), a panic or runtime.Goexit is a crash: the next incarnation gets the messages that were
// not acknowledged.
type Work[K comparable, M, R any] func(ctx context.Context, in *Inbox[K, M, R]) error

// Recipe makes a new child at each start, on the child's own goroutine. An error is a crash.
type Recipe[K comparable, M, R any] struct {
	Name string
	New  func() (Work[K, M, R], error)
}

// Each returns the Recipe of a child that calls handle for one message at a time. A nil error
// acknowledges the message with the reply. An error or a panic is a crash.
func Each[K comparable, M, R any](name string,
	handle func(ctx context.Context, key K, value M) (R, error)) Recipe[K, M, R] {
	return Recipe[K, M, R]{Name: name, New: func() (Work[K, M, R], error) {
		return func(ctx context.Context, in *Inbox[K, M, R]) error {
			for {
				m, err := in.Next(ctx)
				if err != nil {
					return err
				}
				reply, err := handle(ctx, m.Key, m.Value)
				if err != nil {
					return err
				}
				m.Ack(reply)
			}
		}, nil
	}}
}

// Dead is a dead-lettered message.
type Dead[K comparable, M any] struct {
	Key   K
	Value M
	// Reason is or wraps ErrPoison, ErrAttempts, ErrAge or ErrFull. If the message was
	// dead-lettered because Options.Retry gave up, Reason is another error.
	Reason   error
	Err      error // error of its last failure; nil if there was none
	Attempts int
	Deaths   int // crashes while the child had taken only this message
	Age      time.Duration
	State    backoff.State // failures and their delays
}

// A DeadError is the error of Call for a message that was dead-lettered.
type DeadError struct {
	Reason, Err error // as in Dead
	Attempts    int
}

// Error returns the reason, the attempts and the last failure.
func (e *DeadError) Error() string {
	text := fmt.Sprintf("given up after %d attempts: %v", e.Attempts, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Reason and Err.
func (e *DeadError) Unwrap() []error { return []error{e.Reason, e.Err} }

// LogValue implements slog.LogValuer.
func (e *DeadError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("msg", firstLine(e)), slog.Int("attempts", e.Attempts),
		slog.String("reason", firstLine(e.Reason)))
}

// Options configures a Resender. Child is required.
type Options[K comparable, M, R any] struct {
	Child Recipe[K, M, R]
	// Fallback, if its New is set, replaces Child while Child does not work. It does so after
	// FallbackAfter crashes of Child (0 means 10) without a recovery between them. Child comes back
	// after FallbackAfter crashes of Fallback, and at the latest after FallbackFor, if that is
	// above 0. If FallbackFor passes while Fallback waits for a restart, Child starts at the end of
	// this wait.
	//
	// When FallbackFor has passed, Child is on trial for the time FallbackFor. If Child crashes in
	// this time, Fallback replaces it at once. Example: FallbackAfter is 10 and FallbackFor is 1
	// minute. After 10 crashes of Child, Fallback runs for a minute. Then Child runs, and one crash
	// within the next minute brings Fallback back.
	Fallback      Recipe[K, M, R]
	FallbackAfter int
	FallbackFor   time.Duration

	// Backoff is the delay before each new incarnation. Nil means 100 ms, doubling to 30 s, with
	// equal jitter.
	//
	// After a crash, the child gets messages in rounds of 1, 2, 4, 8, ... messages. The child has
	// recovered, and the delays start from the beginning, when two conditions hold: the child has
	// acknowledged a whole round, and all messages that it had at crashes are acknowledged or
	// dead-lettered. For a child without messages, the run time counts, as with a Child.StableAfter
	// of zero.
	//
	// Backoff and Retry are called under the Resender's lock, so they must not call the Resender.
	Backoff backoff.Policy
	// Retry is the delay of a message after Nack. If it gives up, the message is dead-lettered. Nil
	// means Backoff, with one difference: if Backoff gives up and DeadLetter is nil, the last delay
	// of the message is repeated, at least 1 s. Like Backoff, it must not call the Resender.
	Retry  backoff.Policy
	Limits Limits
	Size   func(M) int64 // bytes of a message; nil means 0 for each
	// DeadLetter stores a message durably. It returns nil only when the message is durable. After
	// an error it is called again later. It is required if a field of Limits can dead-letter a
	// message, or if a Retry is set that can give up. It is called by Serve, and by Send and Call
	// for DropOldest.
	DeadLetter func(ctx context.Context, d Dead[K, M]) error
	Spill      func(ctx context.Context, key K, value M) error // for Overflow Spill
	// OnEvent is called as Spec.OnEvent is, with events of the kinds Started, Ended, Stopping,
	// Stuck and Escalated.
	OnEvent func(ctx context.Context, e Event)
	Rand    rand.Source // used under the Resender's lock; nil means one with a random seed
}

// ends reports whether p gives up after some number of delays or some time. It asks p for the
// delay after more delays than there can be.
func ends(p backoff.Policy) bool {
	_, _, ok := p.Next(backoff.State{N: math.MaxUint32, Step: math.MaxUint32,
		Slept: math.MaxInt64}, rand.NewPCG(0, 0))
	return !ok
}

func (o Options[K, M, R]) withDefaults() (Options[K, M, R], error) {
	l := &o.Limits
	givesUp := l.MaxDeaths > 0 || l.MaxAttempts > 0 || l.MaxAge > 0 || l.Overflow == DropOldest
	switch {
	case o.Child.New == nil:
		return o, errors.New("want a Child with a New")
	case l.Items < 0 || l.Bytes < 0 || l.Window < 0 || l.MaxDeaths < 0 || l.MaxAttempts < 0 ||
		o.FallbackAfter < 0:
		return o, errors.New("a limit is negative: want 0 or more")
	case l.MaxAge < 0 || l.Stall < 0 || l.Shutdown < 0 || o.FallbackFor < 0:
		return o, errors.New("a time limit is negative: want 0 or more")
	case l.Overflow > Spill:
		return o, fmt.Errorf("overflow %v: want Block, Reject, DropOldest or Spill", l.Overflow)
	case l.Overflow == Spill && o.Spill == nil:
		return o, errors.New("overflow Spill: want a Spill function")
	case givesUp && o.DeadLetter == nil:
		return o, errors.New("a limit drops messages: want a DeadLetter function, so that none " +
			"is lost silently")
	}
	l.Items = cmp.Or(l.Items, 100_000)
	l.Bytes = cmp.Or(l.Bytes, 64<<20)
	l.Window = cmp.Or(l.Window, 1024)
	l.Shutdown = cmp.Or(l.Shutdown, defaultChildShutdown)
	o.FallbackAfter = cmp.Or(o.FallbackAfter, 10)
	if o.Fallback.New == nil {
		o.FallbackAfter = 0
	}
	if o.Backoff == nil {
		o.Backoff = backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Equal()
	}
	switch {
	case o.Retry == nil:
		o.Retry = o.Backoff
	case o.DeadLetter == nil && ends(o.Retry):
		return o, errors.New("the policy Retry gives up: want a DeadLetter function, so that no " +
			"message is lost silently")
	}
	if err := errors.Join(backoff.Validate(o.Backoff), backoff.Validate(o.Retry)); err != nil {
		return o, fmt.Errorf("backoff: %w", err)
	}
	if o.Size == nil {
		o.Size = func(M) int64 { return 0 }
	}
	if o.Rand == nil {
		o.Rand = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	return o, nil
}
