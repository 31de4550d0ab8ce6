package retry

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

const (
	defaultAttempts = 10
	defaultPolls    = 60
	defaultMaxHint  = 5 * time.Minute
)

var defaultPolicy backoff.Policy = backoff.Exponential(100*time.Millisecond, 2,
	30*time.Second).Full()

// Options are the settings of a retry. The zero value is ready to use: at most 10 attempts, with
// exponential backoff and full jitter between them, from 100 ms doubling to 30 s.
//
// Options are only read, so one value serves any number of goroutines, provided that Rand is nil or
// safe for concurrent use (a *rand.PCG is not). A negative duration, a negative Targets, or an
// invalid Policy is refused with ErrOptions before the first attempt.
type Options struct {
	// Policy decides how long to wait between attempts. Nil means exponential backoff with full
	// jitter, from 100 ms doubling to 30 s.
	Policy backoff.Policy
	// MaxAttempts limits the attempts, including the first. Zero means 10, or 60 in Poll. But if
	// MaxElapsed or MaxFailing is set, or if Policy ends by itself, zero means no limit. A negative
	// number always means no limit.
	MaxAttempts int
	// AttemptTimeout bounds each attempt. When this time has passed since the start of the attempt,
	// its context ends with the cause ErrAttemptTimeout. A timeout is a retryable failure, unless
	// the caller's context has ended. Zero means no limit.
	AttemptTimeout time.Duration
	// MaxElapsed bounds the time from the call to the start of the last attempt. Do does not begin
	// a wait that would exceed it, and does not interrupt a running attempt. Zero means no limit.
	MaxElapsed time.Duration
	// MaxFailing is like MaxElapsed, but the time begins at the first failure. If the first attempt
	// runs for an hour before it fails, that hour does not count. The time begins again at a
	// failure with the action Progress, and at the first failure after an ErrNotReady. Zero means
	// no limit.
	MaxFailing time.Duration
	// Classify decides how to handle a failure. It is not called for an error marked by Permanent,
	// or for an inner retry's *Error whose method Permanent returns true. If Classify is nil or
	// returns Undecided, the function Classify decides.
	Classify func(err error) Action
	// Budget limits the attempts of all calls that share it. Nil means no such limit.
	Budget Budget
	// MaxHint is the longest hint (Retry-After, After) that is followed. A longer one stops the
	// retry with ErrHint, and Error.After holds the hint. Zero means 5 minutes.
	MaxHint time.Duration
	// ClampHint makes the retry wait for MaxHint, instead of stopping, if a hint is longer than
	// MaxHint.
	ClampHint bool
	// ExactHint makes the retry wait exactly as long as a hint demands, even if Policy would wait
	// longer. After that, Policy starts from its beginning. A Policy that ends by itself does not
	// start again, because it would then never end.
	//
	// Without ExactHint, the retry waits for the hint or for Policy's wait, whichever is longer.
	// It adds up to a tenth to the hint, so that clients with the same hint do not all return at
	// once.
	ExactHint bool
	// Targets is the number of services among which the operation chooses by Attempt.Target. After
	// a failure with the action Failover, the next target is tried at once. Once all targets have
	// failed, the next attempt waits according to Policy. Zero means one target.
	Targets int
	// Refresh renews a stale token or address after a failure with the action Refresh. If Refresh
	// is nil, such a failure is final. If several failures in a row need a refresh, the first
	// refresh runs at once, and each later one waits according to Policy. The next attempt follows
	// a refresh at once, even if the refresh fails. The error of a failed refresh is kept like the
	// failure of an attempt. If that error is marked by Permanent, the retry stops.
	Refresh func(ctx context.Context) error
	// SuppressNested makes each retry inside an attempt run its operation only once: a retryable
	// failure stops it with ErrNested. Example: three nested retries of three attempts each then
	// make three calls instead of 27. A retry is nested if its context comes from the attempt and
	// the attempt has not ended. A nested [Poll] continues in some cases.
	SuppressNested bool
	// Key is the idempotency key of the call, which the operation finds in Attempt.Key. If it is
	// empty and the call is nested in another attempt, the key of that attempt is used.
	Key string
	// WaitFirst makes Poll wait before its first poll too.
	WaitFirst bool
	// OnEvent is called for each event, on the goroutine that called Do, with the context of the
	// attempt. It must not block.
	OnEvent func(ctx context.Context, e Event)
	// Rand is the source of randomness. Nil means the runtime's.
	Rand rand.Source

	repeatable func() error // reports why the operation cannot run again; nil if it always can
	beforeWait func()       // called before each wait, of the policy or the budget; may be nil
	timed      bool         // the operation bounds its attempts itself: read the clock at the call
}

// Validate returns an error that wraps ErrOptions and names the invalid option. Do and the other
// functions check their options themselves.
func (o Options) Validate() error { return o.check() }

// check is Validate without a copy of the options.
func (o *Options) check() error {
	if o.Policy != nil {
		if err := backoff.Validate(o.Policy); err != nil {
			return fmt.Errorf("%w: Policy: %w", ErrOptions, err)
		}
	}
	if o.AttemptTimeout|o.MaxElapsed|o.MaxFailing|o.MaxHint >= 0 && o.Targets >= 0 {
		return nil // none is negative
	}
	for _, d := range [...]struct {
		name  string
		value time.Duration
	}{
		{"AttemptTimeout", o.AttemptTimeout}, {"MaxElapsed", o.MaxElapsed},
		{"MaxFailing", o.MaxFailing}, {"MaxHint", o.MaxHint},
	} {
		if d.value < 0 {
			return fmt.Errorf("%w: %s is negative: %v", ErrOptions, d.name, d.value)
		}
	}
	return fmt.Errorf("%w: Targets is negative: %d", ErrOptions, o.Targets)
}

// policy returns the policy to use.
func (o *Options) policy() backoff.Policy {
	if o.Policy == nil {
		return defaultPolicy
	}
	return o.Policy
}

// exhausted reports whether n attempts are the maximum, so that no further attempt may follow.
func (o *Options) exhausted(n int) bool {
	if o.MaxAttempts != 0 {
		return o.MaxAttempts > 0 && n >= o.MaxAttempts
	}
	return n >= defaultAttempts && !o.ends()
}

// ends reports whether a setting other than MaxAttempts ends the retry.
func (o *Options) ends() bool {
	return o.MaxElapsed > 0 || o.MaxFailing > 0 || !endless(o.policy())
}

// plain reports whether the first attempt of a call needs neither the clock, nor a budget, nor a
// context of its own.
func (o *Options) plain() bool {
	return o.Budget == nil && o.OnEvent == nil && o.AttemptTimeout <= 0 && o.MaxElapsed <= 0 &&
		o.Key == "" && !o.SuppressNested && !o.timed
}

// endless reports whether p never gives up by itself. It asks p for the wait after 2^32-1 waits
// that took the largest Duration in total. No retry gets so far, so a p that still returns a wait
// is endless.
func endless(p backoff.Policy) bool {
	_, _, ok := p.Next(backoff.State{N: math.MaxUint32, Step: math.MaxUint32,
		Slept: math.MaxInt64}, zeros{})
	return ok
}

// zeros is a source of randomness for calls with results that do not depend on it.
type zeros struct{}

// Uint64 implements rand.Source.
func (zeros) Uint64() uint64 { return 0 }
