package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Why a message did not get an answer. All but ErrHeld and ErrFull are reasons in a [DeadError].
var (
	ErrHeld     = errors.New("supervise: a message with that key is held already")
	ErrFull     = errors.New("supervise: the resender is full")
	ErrPoison   = errors.New("supervise: the child died of it")
	ErrAttempts = errors.New("supervise: it has had its attempts")
	ErrAge      = errors.New("supervise: it is too old")
)

// ErrSpilled is what Call returns for a message that went to Options.Spill: nobody here will answer.
var ErrSpilled = errors.New("supervise: the message was spilled")

// Overflow says what becomes of a message for which there is no room.
type Overflow uint8

// The ways.
const (
	Block      Overflow = iota // Send waits until there is room or its context ends
	Reject                     // Send returns ErrFull
	DropOldest                 // the oldest that is not out becomes a dead letter; ErrFull when all are out
	Spill                      // the new message goes to Options.Spill
)

// Limits bound what a Resender holds and how long it tries. A zero value stands for the default, or for no limit where
// that is said.
type Limits struct {
	Items    int   // messages held; 0 means 100,000
	Bytes    int64 // of them, by Options.Size; 0 means 64 MiB; one message is always allowed
	Overflow Overflow
	Window   int // messages that the child may have in hand; 0 means 1024

	// MaxDeaths is after how many crashes with this message alone in hand it becomes a dead letter. 0 means never: right
	// where a crash says that the receiver is away, as the message in hand is then as good as any other.
	MaxDeaths int
	// MaxAttempts is how often a message may be taken, the first time included; 0 means no limit.
	MaxAttempts int
	// MaxAge is how long a message may be held; it is judged when the message is not out. 0 means no limit.
	MaxAge time.Duration

	// Stall is how long the child may neither take nor settle a message while it has some; then its context ends and that
	// counts as a crash. 0 means no limit.
	Stall time.Duration
	// Shutdown is how long the child may take to return when its context has ended; 0 means 5 s. Until it has returned
	// there is no other.
	Shutdown time.Duration
}

// Work is one incarnation of a Resender's child: it takes messages from in and settles them, in any order and from any
// goroutine, until ctx ends. An error, a panic or runtime.Goexit is a crash; what was not acked comes again, to the next
// incarnation.
type Work[K comparable, M, R any] func(ctx context.Context, in *Inbox[K, M, R]) error

// Recipe makes the child, afresh at each start and on the child's own goroutine. An error is a crash.
type Recipe[K comparable, M, R any] struct {
	Name string
	New  func() (Work[K, M, R], error)
}

// Each is the recipe of a child that handles one message at a time: a reply acks it, an error or a panic is a crash.
func Each[K comparable, M, R any](name string, handle func(ctx context.Context, key K, value M) (R, error)) Recipe[K, M, R] {
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

// Dead is a message that was given up.
type Dead[K comparable, M any] struct {
	Key      K
	Value    M
	Reason   error // ErrPoison, ErrAttempts, ErrAge or ErrFull, or that its backoff gave up
	Err      error // of its last failure; nil: it never failed
	Attempts int
	Deaths   int // crashes with this message alone in hand
	Age      time.Duration
	State    backoff.State // failures and the waits that followed them
}

// A DeadError is the answer of a message that was given up. It is its Reason and its last error.
type DeadError struct {
	Reason, Err error
	Attempts    int
}

// Error gives the reason, the attempts and the last failure.
func (e *DeadError) Error() string {
	text := fmt.Sprintf("given up after %d attempts: %v", e.Attempts, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns both.
func (e *DeadError) Unwrap() []error { return []error{e.Reason, e.Err} }

// Options is what a Resender is made of.
type Options[K comparable, M, R any] struct {
	Child Recipe[K, M, R]
	// Fallback, when its New is set, makes the child after FallbackAfter crashes in a row (0 means 10) without recovery,
	// until it has crashed as often, or, when FallbackFor is above 0, that time has passed: then Child is tried again,
	// and left for the Fallback at its first crash within FallbackFor.
	Fallback      Recipe[K, M, R]
	FallbackAfter int
	FallbackFor   time.Duration

	// Backoff is the wait before each new incarnation; nil means 100 ms, doubling to 30 s, drawn from the upper half. It
	// begins anew when what was out at the crash has been settled and the last round of probes was acked in full.
	Backoff backoff.Policy
	// Retry is the wait of a message that was nacked; nil means that of Backoff.
	Retry  backoff.Policy
	Limits Limits
	Size   func(M) int64 // bytes of a message; nil means 0
	// DeadLetter keeps what is given up; durable when it returns. An error brings the message back to it after a wait. It
	// must be set where Limits give messages up. Called by Serve, and by Send for DropOldest.
	DeadLetter func(ctx context.Context, d Dead[K, M]) error
	Spill      func(ctx context.Context, key K, value M) error // for Overflow Spill
	OnEvent    func(Event)                                     // as Spec.OnEvent; Started, Ended, Stopping, Stuck and Escalated
	Rand       rand.Source                                     // used under the Resender's lock; nil means one seeded by the runtime
}

func (o Options[K, M, R]) withDefaults() (Options[K, M, R], error) {
	l := &o.Limits
	givesUp := l.MaxDeaths > 0 || l.MaxAttempts > 0 || l.MaxAge > 0 || l.Overflow == DropOldest
	switch {
	case o.Child.New == nil:
		return o, errors.New("want a Child with a New")
	case l.Items < 0 || l.Bytes < 0 || l.Window < 0 || l.MaxDeaths < 0 || l.MaxAttempts < 0 || o.FallbackAfter < 0:
		return o, errors.New("a limit is negative: want 0 or more")
	case l.MaxAge < 0 || l.Stall < 0 || l.Shutdown < 0 || o.FallbackFor < 0:
		return o, errors.New("a time limit is negative: want 0 or more")
	case l.Overflow > Spill:
		return o, fmt.Errorf("overflow %d: want Block, Reject, DropOldest or Spill", l.Overflow)
	case l.Overflow == Spill && o.Spill == nil:
		return o, errors.New("overflow Spill: want a Spill function")
	case givesUp && o.DeadLetter == nil:
		return o, errors.New("a limit gives messages up: want a DeadLetter function, so that none is lost silently")
	}
	l.Items = cmp.Or(l.Items, 100_000)
	l.Bytes = cmp.Or(l.Bytes, 64<<20)
	l.Window = cmp.Or(l.Window, 1024)
	l.Shutdown = or(l.Shutdown, defaultChildShutdown)
	o.FallbackAfter = cmp.Or(o.FallbackAfter, 10)
	if o.Fallback.New == nil {
		o.FallbackAfter = 0
	}
	if o.Backoff == nil {
		o.Backoff = backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Equal()
	}
	if o.Retry == nil {
		o.Retry = o.Backoff
	}
	if err := errors.Join(backoff.Validate(o.Backoff), backoff.Validate(o.Retry)); err != nil {
		return o, fmt.Errorf("backoff: %w", err)
	}
	if o.Size == nil {
		o.Size = func(M) int64 { return 0 }
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.Rand == nil {
		o.Rand = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	return o, nil
}
