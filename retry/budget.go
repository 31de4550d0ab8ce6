package retry

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-io/penstock/internal/recent"
)

// Budget limits the attempts of all calls that share it. Without one, a service that is down or
// slow receives several times its usual load, because every failed call is repeated. Circuit
// breakers and rate limiters can implement Budget without an import of this package. A Budget is
// safe for concurrent use.
type Budget interface {
	// Allow is called right before each attempt, after the wait. An error refuses the attempt and
	// stops the retry: Error.Stop wraps ErrBudget and the error. In Hedge, running attempts
	// continue. Allow may wait for permission until ctx ends. FromContext(ctx) distinguishes a
	// retry (Number above 1) from a first attempt, and holds the failure that is being retried.
	// Poll does not call Allow before it polls again after ErrNotReady.
	Allow(ctx context.Context) error
	// Report is called once for each allowed attempt, after the attempt has ended. ctx is the
	// context that Allow got. A nil err means success or, in Poll, ErrNotReady. If err was marked
	// by Permanent, the failure is not retried. If err matches context.Canceled, the result does
	// not count: the call ended before or during the attempt, or another attempt of a Hedge
	// succeeded.
	Report(ctx context.Context, err error)
}

var (
	errNoTokens  = errors.New("token bucket is empty")
	errRatio     = errors.New("too many retries per call")
	errInFlight  = errors.New("too many retries in flight")
	errThrottled = errors.New("throttled because the service refuses requests")
)

// isRetry reports whether ctx belongs to an attempt after the first.
func isRetry(ctx context.Context) bool { return FromContext(ctx).Number > 1 }

// unwanted reports whether err is only a consequence of the caller's cancellation. Such an error
// tells nothing about the service. unwanted also checks ctx, because an operation may return just
// the cause of the cancellation.
func unwanted(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled)
}

// TokenBucket returns the budget of the AWS SDKs. The bucket holds at most size tokens and starts
// full. Each retry takes price tokens. Each success puts refill tokens back. If the successful
// attempt was a retry, its price is put back, too. The price of a retry that the caller cancels is
// also put back. The bucket does not fill with time. So once it is empty, a service that is down
// receives only first attempts, and no retries. AWS uses (500, 5, 1). Values below 1 count as 1.
//
// An error can set the price of its retry by a method RetryCost() int. A result of 0 or less means
// price.
func TokenBucket(size, price, refill int) Budget {
	size = max(size, 1)
	price, refill = max(price, 1), min(max(refill, 1), size)
	return &tokenBucket{tokens: tokens{size: size, price: price, refill: refill, left: size}}
}

type tokenBucket struct {
	mu sync.Mutex
	tokens
}

// Allow implements Budget.
func (b *tokenBucket) Allow(ctx context.Context) error {
	price := b.priceOf(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.take(price) {
		return errNoTokens
	}
	return nil
}

// Report implements Budget.
func (b *tokenBucket) Report(ctx context.Context, err error) {
	price, back := 0, 0
	switch {
	case err == nil:
		back = b.refill
		fallthrough
	case unwanted(ctx, err):
		price = b.priceOf(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putBack(price)
	b.putBack(back)
}

// priceOf returns the price of the attempt of ctx.
func (b *tokenBucket) priceOf(ctx context.Context) int {
	a := FromContext(ctx)
	if a.Number <= 1 {
		return 0
	}
	if a.Err != nil {
		if e, ok := errors.AsType[interface {
			error
			RetryCost() int
		}](a.Err); ok {
			return cmp.Or(max(e.RetryCost(), 0), b.price)
		}
	}
	return b.price
}

// Ratio returns the budget of Finagle, Linkerd and tower. It bounds the retries within the window:
// a number for each call (share), plus a number per second (perSecond), so that a client with few
// calls can retry as well. Example: Finagle uses (0.2, 10, 10 s), which allows 100 retries in 10
// seconds, and 2 more for every 10 calls in that time. A window of 0 or less means 10 s.
func Ratio(share, perSecond float64, window time.Duration) Budget {
	if window <= 0 {
		window = 10 * time.Second
	}
	return &ratioBudget{start: time.Now(), ratio: ratio{share: atLeast(0, share),
		floor: atLeast(0, perSecond) * window.Seconds(), seen: recent.New(window)}}
}

type ratioBudget struct {
	start time.Time
	mu    sync.Mutex
	ratio
}

// Allow implements Budget.
func (b *ratioBudget) Allow(ctx context.Context) error {
	retry := isRetry(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.allow(time.Since(b.start), retry) {
		return errRatio
	}
	return nil
}

// Report implements Budget.
func (b *ratioBudget) Report(context.Context, error) {}

// InFlight returns the budget of Envoy. It bounds the number of retries that run at the same time,
// to the given share of all running attempts. A number of retries (floor) is always allowed. Envoy
// uses (0.2, 3).
func InFlight(share float64, floor int) Budget {
	return &inFlightBudget{inFlight: inFlight{share: atLeast(0, share), floor: max(floor, 0)}}
}

type inFlightBudget struct {
	mu sync.Mutex
	inFlight
}

// Allow implements Budget.
func (b *inFlightBudget) Allow(ctx context.Context) error {
	retry := isRetry(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.allow(retry) {
		return errInFlight
	}
	return nil
}

// Report implements Budget.
func (b *inFlightBudget) Report(ctx context.Context, _ error) {
	retry := isRetry(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(retry)
}

// Throttle returns the adaptive throttling of Google's SRE book. It refuses attempts, including
// first ones, with probability max(0, (requests - k*accepts) / (requests + 1)). Both numbers are
// those of the last two minutes. A client then sends at most about k times as many requests as the
// service accepts. The book uses k = 2. A k below 1 counts as 1. The parameter src is the source of
// randomness, which need not be safe for concurrent use. A nil src means the runtime's source.
//
// A request is not accepted if its failure is evidence of overload. Such failures are the HTTP
// statuses 408, 429, 502, 503, 504 and 520 to 527, and all retryable failures without a status,
// such as a timeout. All other responses count as accepted, for example 404, 409, 422 and 500. A
// call that its caller canceled does not count.
func Throttle(k float64, src rand.Source) Budget {
	if src == nil {
		src = runtimeSource{}
	}
	b := &throttleBudget{start: time.Now(), rand: rand.New(src)}
	b.k, b.seen = atLeast(1, k), recent.New(2*time.Minute)
	return b
}

type throttleBudget struct {
	start time.Time
	mu    sync.Mutex
	rand  *rand.Rand // used under mu
	throttle
}

// Allow implements Budget.
func (b *throttleBudget) Allow(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.allow(time.Since(b.start), b.rand.Float64()) {
		return errThrottled
	}
	return nil
}

// Report implements Budget.
func (b *throttleBudget) Report(ctx context.Context, err error) {
	canceled, overloaded := unwanted(ctx, err), err != nil && isOverload(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch now := time.Since(b.start); {
	case canceled:
		b.seen.TakeOut(now, requests)
	case !overloaded:
		b.seen.Add(now, accepts, 1)
	}
}

// isOverload reports whether the failure of an attempt is evidence that the service is overloaded.
func isOverload(err error) bool {
	e, ok := errors.AsType[*StatusError](err)
	if !ok {
		return Classify(err) == Retry
	}
	switch s := e.Status; s {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return isOriginFailure(s)
	}
}
