package penstockgrpc

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/grpc/internal/guard"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/retry"
)

// Client intercepts the calls of a client. A nil field adds no layer, so the zero value does
// nothing. The layers are, from the outside: retry, breaker, limit. Because of this order, a call
// that waits for a retry holds no permit of the limiter, and an open breaker refuses a call before
// the call queues. Use a separate breaker and limiter for each target.
//
// The fields must not change once the Client is in use. A Client is safe for concurrent use.
type Client struct {
	// Retry are the settings of retries. If Classify is nil or returns Undecided, the status code
	// decides. Unavailable is retried, and so is ResourceExhausted if Limit has refused the call or
	// the server sends a retry delay. Unknown, DeadlineExceeded, Aborted and Internal are retried
	// if the method is idempotent.
	Retry *retry.Options
	// Idempotent reports whether a method, such as "/package.Service/Method", may run twice. Nil
	// means that no method may.
	Idempotent func(method string) bool
	// Breaker refuses calls while the server fails. These codes count as failures: Unknown,
	// DeadlineExceeded, Internal, Unavailable and DataLoss.
	Breaker *breaker.Breaker
	// Limit limits the calls in flight. A stream holds its permit until it ends, and its
	// duration counts as a round trip. An adaptive limiter would therefore take a long stream
	// for a slow server. For long streams, use another Client with a limiter such as
	// limit.Fixed.
	Limit *limit.Limiter
}

// DialOptions returns the options for grpc.NewClient.
func (c Client) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(c.InterceptUnary),
		grpc.WithChainStreamInterceptor(c.InterceptStream),
	}
}

// InterceptUnary is a grpc.UnaryClientInterceptor.
func (c Client) InterceptUnary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	g := guard.Guard{Breaker: c.Breaker, Limit: c.Limit}
	return c.retry(ctx, method, func(ctx context.Context) error {
		return g.Run(ctx, func(ctx context.Context) error {
			return invoke(ctx, method, req, reply, cc, opts...)
		}, codeOf)
	})
}

// InterceptStream is a grpc.StreamClientInterceptor. It retries only the opening of a stream.
// Messages that were sent on a stream are not sent again.
func (c Client) InterceptStream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer,
	opts ...grpc.CallOption,
) (stream grpc.ClientStream, err error) {
	g := guard.Guard{Breaker: c.Breaker, Limit: c.Limit}
	// The stream outlives the attempt's context.
	err = c.retry(ctx, method, func(context.Context) error {
		call, err := g.Begin(ctx)
		if err != nil {
			return err
		}
		var once sync.Once
		end := func(err error) { once.Do(func() { call.End(err, codeOf(err)) }) }
		finished := append(slices.Clip(opts), grpc.OnFinish(end))
		if stream, err = open(ctx, desc, cc, method, finished...); err != nil {
			end(err)
		}
		return err
	})
	return stream, err
}

// retry makes the attempts of a call according to the settings in c.Retry.
func (c Client) retry(ctx context.Context, method string,
	attempt func(context.Context) error) error {
	if c.Retry == nil {
		return withStatus(attempt(ctx))
	}
	o := *c.Retry
	o.Classify = func(err error) retry.Action {
		if own := c.Retry.Classify; own != nil {
			if action := own(err); action != retry.Undecided {
				return action
			}
		}
		idempotent := c.Idempotent != nil && c.Idempotent(method)
		return guard.Action(err, codeOf(err), idempotent, retryDelay(err) > 0)
	}
	return withStatus(retry.Do(ctx, func(ctx context.Context) error {
		err := withStatus(attempt(ctx))
		if wait := retryDelay(err); wait > 0 {
			return retry.After(wait, err)
		}
		return err
	}, o))
}
