// Package penstockconnect has an interceptor for Connect (connectrpc.com/connect) with the retries,
// circuit breakers and concurrency limits of Penstock.
//
//	guard := &penstockconnect.Interceptor{Retry: &retry.Options{}, Breaker: breaker, Limit: limiter}
//	client := pingv1connect.NewPingServiceClient(httpClient, url, connect.WithInterceptors(guard))
//
// In a handler, an Interceptor with a Limit limits the calls that are handled at once. Further
// calls wait in the limiter's queue, or are refused if the queue is full or the wait is too long:
//
//	mux.Handle(pingv1connect.NewPingServiceHandler(service,
//		connect.WithInterceptors(&penstockconnect.Interceptor{Limit: limiter})))
//
// A refused call fails with the code resource_exhausted (limit) or unavailable (breaker). If the
// expected wait is known, the error has a google.rpc.RetryInfo, which a client's Interceptor with
// Retry follows. In the process that refused the call, errors.As finds the *limit.RefusedError or
// *breaker.OpenError that the error wraps.
package penstockconnect

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/grpc/internal/guard"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/retry"
)

// Interceptor implements connect.Interceptor for clients and handlers. A nil field adds no layer,
// so the zero value does nothing. The layers are, from the outside: retry, breaker, limit. Use a
// separate breaker and limiter for each target of a client.
//
// The fields must not change once the Interceptor is in use. An Interceptor is safe for concurrent
// use.
type Interceptor struct {
	// Retry are the settings of the retries of a client's unary calls. If Classify is nil or
	// returns Undecided, the Connect code of the error decides. The code unavailable is retried,
	// and so is resource_exhausted if Limit has refused the call or the server sends a retry delay.
	// The codes unknown, deadline_exceeded, aborted and internal are retried if the schema declares
	// the procedure idempotent or without side effects. Handlers do not use Retry.
	Retry *retry.Options
	// Breaker refuses calls while the server or handler fails. These codes count as failures:
	// unknown, deadline_exceeded, internal, unavailable and data_loss.
	Breaker *breaker.Breaker
	// Limit limits the calls in flight. A stream holds its permit until it ends or is closed,
	// and its duration counts as a round trip. An adaptive limiter would therefore take a long
	// stream for a slow server. For long streams, use another Interceptor with a limiter such
	// as limit.Fixed.
	Limit *limit.Limiter
}

// WrapUnary implements connect.Interceptor.
func (i *Interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		call := func(ctx context.Context) error {
			return i.guard().Run(ctx, func(ctx context.Context) (err error) {
				resp, err = next(ctx, req)
				return err
			}, codeOf)
		}
		if spec := req.Spec(); spec.IsClient && i.Retry != nil {
			err = i.retry(ctx, spec, call)
		} else {
			err = withCode(call(ctx))
		}
		if err != nil {
			return nil, err
		}
		return resp, nil
	}
}

// WrapStreamingClient implements connect.Interceptor. A refused stream fails at its first Send or
// Receive.
func (i *Interceptor) WrapStreamingClient(
	next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		call, err := i.guard().Begin(ctx)
		return &clientStream{StreamingClientConn: conn, refused: withCode(err), call: call}
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (i *Interceptor) WrapStreamingHandler(
	next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return withCode(i.guard().Run(ctx, func(ctx context.Context) error {
			return next(ctx, conn)
		}, codeOf))
	}
}

func (i *Interceptor) guard() guard.Guard { return guard.Guard{Breaker: i.Breaker, Limit: i.Limit} }

// retry makes the attempts of a client's unary call.
func (i *Interceptor) retry(ctx context.Context, spec connect.Spec,
	call func(context.Context) error) error {
	idempotent := spec.IdempotencyLevel != connect.IdempotencyUnknown
	o := *i.Retry
	o.Classify = func(err error) retry.Action {
		if own := i.Retry.Classify; own != nil {
			if action := own(err); action != retry.Undecided {
				return action
			}
		}
		return guard.Action(err, codeOf(err), idempotent, retryDelay(err) > 0)
	}
	return withCode(retry.Do(ctx, func(ctx context.Context) error {
		err := withCode(call(ctx))
		if wait := retryDelay(err); wait > 0 {
			return retry.After(wait, err)
		}
		return err
	}, o))
}

// withCode adds a Connect code to err if err is a refusal by the breaker or the limiter, or the
// error of an ended context. It returns all other errors, such as those of handlers, unchanged.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return err
	}
	code, refused := guard.RefusalCode(err)
	if !refused {
		if code = guard.ContextCode(err); code == guard.Unknown {
			return err
		}
	}
	e := connect.NewError(connect.Code(code), err)
	if wait := guard.Hint(err); refused && wait > 0 {
		if d, failed := connect.NewErrorDetail(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); failed == nil {
			e.AddDetail(d)
		}
	}
	return e
}

// codeOf returns the Connect code of err, as a number.
func codeOf(err error) uint32 {
	if err == nil {
		return guard.OK
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return uint32(e.Code())
	}
	return guard.ContextCode(err)
}

// retryDelay returns the wait that err requests, or zero.
func retryDelay(err error) time.Duration {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return 0
	}
	for _, d := range e.Details() {
		if v, failed := d.Value(); failed == nil {
			if info, ok := v.(*errdetails.RetryInfo); ok {
				return max(info.GetRetryDelay().AsDuration(), 0)
			}
		}
	}
	return 0
}

// clientStream is a client's stream that holds the permit of its call. It ends the call when the
// stream ends. If the call was refused, Send and Receive return an error.
type clientStream struct {
	connect.StreamingClientConn
	refused error
	once    sync.Once
	call    guard.Call
}

// Send implements connect.StreamingClientConn.
func (s *clientStream) Send(m any) error {
	if s.refused != nil {
		return s.refused
	}
	return s.StreamingClientConn.Send(m)
}

// Receive implements connect.StreamingClientConn.
func (s *clientStream) Receive(m any) error {
	if s.refused != nil {
		return s.refused
	}
	err := s.StreamingClientConn.Receive(m)
	if err != nil {
		s.close(err)
	}
	return err
}

// CloseResponse implements connect.StreamingClientConn.
func (s *clientStream) CloseResponse() error {
	err := s.StreamingClientConn.CloseResponse()
	if s.refused == nil {
		s.close(nil)
	}
	return err
}

// close ends the call unless it has ended before.
func (s *clientStream) close(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.once.Do(func() { s.call.End(err, codeOf(err)) })
}
