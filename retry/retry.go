package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// DefaultAttempts is the limit of attempts where none is set.
const DefaultAttempts = 10

// Unlimited, as MaxAttempts, leaves the end to Policy, to the limits of time and to the context.
const Unlimited = -1

// DefaultPolicy is the policy where none is set: exponential with full jitter, 100 ms doubling to 30 s.
func DefaultPolicy() backoff.Policy { return defaultPolicy }

var defaultPolicy backoff.Policy = backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Full()

// Retrier holds the settings of retries. The zero value is ready: ten attempts with the default policy. It is read
// only once in use, so one Retrier serves any number of goroutines at once, provided that Rand is nil or safe for
// concurrent use too (a *rand.PCG is not). A copy is a Retrier of its own with the same Budget.
type Retrier struct {
	// Policy says how long to wait; nil means DefaultPolicy.
	Policy backoff.Policy
	// MaxAttempts limits the attempts, the first included, since the start or the last progress (Decision.Reset).
	// 0 means DefaultAttempts, unless Policy gives up by itself (a table, a limit): then Policy decides alone.
	// Unlimited, or any negative number, is no limit.
	MaxAttempts int
	// AttemptTimeout ends each attempt's context; 0 or less: no end of its own. An attempt that ran out of it is
	// retried while the caller's context lives.
	AttemptTimeout time.Duration
	// MaxElapsed limits the time from the call to the start of an attempt, run times and waits included: a wait that
	// would pass it is not begun. A running attempt is not cut. 0 or less: no limit.
	MaxElapsed time.Duration
	// MaxFailing is the same for the time since the first failure after the last success: the run time of a first
	// attempt that took long before it failed does not count. Progress (Decision.Reset) and the good answers of
	// a Poll are successes. 0 or less: no limit.
	MaxFailing time.Duration
	// Classify decides what a failure means. nil, and Decision{} from it, mean Retry. It is not asked about errors
	// marked by Permanent. It is called on the goroutine of the call.
	Classify Classifier
	// Budget limits the attempts of all calls that share it; nil: no such limit. It is asked before the wait.
	Budget Budget
	// Hint bounds what a server may ask for.
	Hint HintLimit
	// Targets is the number of services between which the operation can choose by Attempt.Target: after Failover the
	// next one is tried at once, and the policy's wait comes only when all of them have failed in turn. 0 means 1.
	Targets int
	// Refresh renews what a failure with the action Refresh has shown to be stale (a token, an address). The first
	// refresh is followed by an attempt at once, further ones in a row by the policy's wait. nil: such a failure is
	// final, as nothing would change. Its own error is a failure like any other.
	Refresh func(ctx context.Context) error
	// Nested makes this retry ignore that it runs inside another one's attempt, and retry in full.
	Nested bool
	// Key is the sequence's idempotency key, found in the attempt's context; "" takes over the key of an outer retry.
	Key string
	// WaitFirst waits before the first poll too; only Poll reads it.
	WaitFirst bool
	// StopOnServerError ends a Poll at the first ServerError; only Poll reads it.
	StopOnServerError bool
	// OnEvent is told what happens, on the goroutine of the call and without a lock held; it must not block.
	OnEvent func(Event)
	// Rand is where chance comes from; nil means the runtime's source.
	Rand rand.Source
}

// Option changes one setting of a call.
type Option func(Retrier) Retrier

// Using takes all settings of r; options after it change them.
func Using(r Retrier) Option { return func(Retrier) Retrier { return r } }

// Policy sets how long to wait.
func Policy(p backoff.Policy) Option {
	return func(r Retrier) Retrier { r.Policy = p; return r }
}

// MaxAttempts limits the attempts, the first included; see Retrier.MaxAttempts.
func MaxAttempts(n int) Option {
	return func(r Retrier) Retrier { r.MaxAttempts = n; return r }
}

// MaxPolls limits the polls of a Poll, the first included. It is MaxAttempts under the name that reads well there.
func MaxPolls(n int) Option { return MaxAttempts(n) }

// AttemptTimeout limits the run of each attempt.
func AttemptTimeout(d time.Duration) Option {
	return func(r Retrier) Retrier { r.AttemptTimeout = d; return r }
}

// MaxElapsed limits the time from the call to the start of the last attempt.
func MaxElapsed(d time.Duration) Option {
	return func(r Retrier) Retrier { r.MaxElapsed = d; return r }
}

// MaxFailing limits the time since the first failure after the last success.
func MaxFailing(d time.Duration) Option {
	return func(r Retrier) Retrier { r.MaxFailing = d; return r }
}

// Classify sets what failures mean.
func Classify(c ...Classifier) Option {
	all := Chain(c...)
	return func(r Retrier) Retrier { r.Classify = all; return r }
}

// Spend draws the attempts from a budget.
func Spend(b Budget) Option {
	return func(r Retrier) Retrier { r.Budget = b; return r }
}

// Hints bounds what a server may ask for.
func Hints(h HintLimit) Option {
	return func(r Retrier) Retrier { r.Hint = h; return r }
}

// Targets sets the number of services between which the operation can choose.
func Targets(n int) Option {
	return func(r Retrier) Retrier { r.Targets = n; return r }
}

// RefreshWith sets what renews a stale token or address.
func RefreshWith(f func(ctx context.Context) error) Option {
	return func(r Retrier) Retrier { r.Refresh = f; return r }
}

// Nested retries in full even inside another retry's attempt: the attempts multiply.
func Nested() Option {
	return func(r Retrier) Retrier { r.Nested = true; return r }
}

// Key names the sequence; every attempt's context carries it. [NewKey] makes one.
func Key(key string) Option {
	return func(r Retrier) Retrier { r.Key = key; return r }
}

// WaitFirst makes a Poll wait before its first poll too.
func WaitFirst() Option {
	return func(r Retrier) Retrier { r.WaitFirst = true; return r }
}

// StopOnServerError makes a ServerError end a Poll.
func StopOnServerError() Option {
	return func(r Retrier) Retrier { r.StopOnServerError = true; return r }
}

// OnEvent tells f what happens.
func OnEvent(f func(Event)) Option {
	return func(r Retrier) Retrier { r.OnEvent = f; return r }
}

// Rand sets where chance comes from; one source serves one goroutine at a time.
func Rand(src rand.Source) Option {
	return func(r Retrier) Retrier { r.Rand = src; return r }
}

func configure(opts []Option) (r Retrier) {
	for _, o := range opts {
		r = o(r)
	}
	return r
}

// standard has the settings of calls without options.
var standard Retrier

// Do runs op until it returns nil, at most ten times by default, waiting in between. The error is an *Error that
// tells why it stopped and keeps what op returned; errors.Is and errors.AsType look through it.
func Do(ctx context.Context, op func(context.Context) error, opts ...Option) error {
	// A known context and no options: the path of nearly every call, which has nothing to set up. It is written so that
	// the compiler keeps little over the calls: opts is dead from here on, and ctx is the mark's own.
	if len(opts) > 0 {
		return doSlowly(ctx, op, opts)
	}
	m := known(&ctx)
	if m == nil {
		return doSlowly(ctx, op, nil)
	}
	if m.mortal {
		if m.Context.Err() != nil {
			return doSlowly(m.Context, op, nil)
		}
	}
	if err := op(m); err != nil {
		return standard.again(m.Context, op, m, err)
	}
	return nil
}

// doSlowly stands alone to keep the stack frame of Do small.
//
//go:noinline
func doSlowly(ctx context.Context, op func(context.Context) error, opts []Option) error {
	r := configure(opts)
	return r.Do(ctx, op)
}

// Value is Do for an operation that gives a value. With an error the value is the zero value.
func Value[T any](ctx context.Context, op func(context.Context) (T, error), opts ...Option) (T, error) {
	var v T
	keep := func(ctx context.Context) (err error) {
		v, err = op(ctx)
		return err
	}
	err := Do(ctx, keep, opts...)
	if err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}

// Do runs op until it returns nil, as the package's Do with these settings.
func (r *Retrier) Do(ctx context.Context, op func(context.Context) error) error {
	if r.watched() || ctx.Err() != nil {
		return r.whole(ctx, op)
	}
	m := first(ctx)
	if err := op(m); err != nil {
		return r.again(ctx, op, m, err)
	}
	return nil
}

// watched reports whether the call has to be looked after from its start.
func (r *Retrier) watched() bool {
	return r.Budget != nil || r.OnEvent != nil || r.AttemptTimeout > 0 || r.MaxElapsed > 0 || r.Key != ""
}

// again takes over after the first attempt has failed.
func (r *Retrier) again(ctx context.Context, op func(context.Context) error, m *mark, err error) error {
	s := sequence{mark: m, tries: 1, plan: plan{row: 1}}
	for {
		if stop := s.failed(ctx, r, err); stop != nil {
			return s.error(r, stop)
		}
		if err = op(s.mark); err == nil {
			return nil
		}
		s.tries++
		s.row++
	}
}

// whole is the call with everything on: clock, budget, events, timeouts.
func (r *Retrier) whole(ctx context.Context, op func(context.Context) error) error {
	var s sequence
	stop := s.begin(ctx, r)
	for stop == nil {
		err := s.run(r, op)
		if err == nil {
			return nil
		}
		stop = s.failed(ctx, r, err)
	}
	return s.error(r, stop)
}
